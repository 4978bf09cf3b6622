package hosttest

import (
	"context"
	"net"
	"net/http"
)

// Client returns an HTTP client of a unix socket. It keeps no connection open,
// and the host in a request's URL does not matter.
func Client(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
}
