package hosttest

import (
	"crypto/rand"
	"fmt"
	"net"
	"slices"
	"testing"
)

// FreeSubnet returns the first three numbers of a /24 network that no interface
// of the host uses, e.g. 10.130.7.
func FreeSubnet(t testing.TB) string {
	t.Helper()
	taken, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatalf("cannot list the host's addresses: %v", err)
	}
	for range 1000 {
		var octets [2]byte
		_, _ = rand.Read(octets[:])
		ip := net.IPv4(10, 128+octets[0]%100, octets[1], 1)
		if !slices.ContainsFunc(taken, func(a net.Addr) bool { n, ok := a.(*net.IPNet); return ok && n.Contains(ip) }) {
			return fmt.Sprintf("10.%d.%d", ip.To4()[1], ip.To4()[2])
		}
	}
	t.Fatal("no free subnet")
	return ""
}
