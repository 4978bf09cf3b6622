//go:build integration

package hostnet

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"hostler/hostnet/nettest"
)

// A neighbour whose hardware address becomes known while the kernel waits for its
// answer, e.g. by a router's advertisement, is asked again at once.
func TestResolveAsksAgain(t *testing.T) {
	n, peer := nettest.New(t), nettest.New(t)
	n.Pair("up0", peer, "far0")
	n.IP("addr add 192.0.2.1/24 dev up0")
	h := open(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- h.Resolve(ctx, "up0", netip.MustParseAddr("192.0.2.2")) }()
	for !strings.Contains(n.IP("neigh show dev up0"), "INCOMPLETE") {
		if ctx.Err() != nil {
			t.Fatal("the kernel does not ask")
		}
	}
	peer.IP("addr add 192.0.2.2/24 dev far0")
	mac := strings.Fields(peer.IP("-o -br link show dev far0"))[2]
	n.IP(fmt.Sprintf("neigh replace 192.0.2.2 lladdr %s nud stale dev up0", mac))
	if err := <-done; err != nil {
		t.Errorf("%v; %s", err, n.IP("neigh show dev up0"))
	}
}
