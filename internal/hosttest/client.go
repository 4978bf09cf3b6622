package hosttest

import (
	"context"
	"net"
	"net/http"
)

// Client returns an HTTP client of a unix socket. The client keeps no
// connection open and ignores the host in a request's URL.
func Client(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
}
