//go:build integration

package networks

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/hostnet/nettest"
	"hostler/tests/harness"
)

// advertise sends what a router sends now and then to all on the device.
func advertise(n *nettest.Namespace, device string) error {
	const lifetime = 30 * 60 // seconds; for so long it is a default router
	packet := []byte{134, 0, 0, 0, 64, 0, lifetime >> 8, lifetime & 0xff, 0, 0, 0, 0, 0, 0, 0, 0}
	return n.Do(func() error {
		link, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		s, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(s) }()
		if err := unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
			return err
		}
		all := unix.SockaddrInet6{ZoneId: uint32(link.Index)}
		copy(all.Addr[:], net.ParseIP("ff02::1"))
		return unix.Sendto(s, packet, 0, &all)
	})
}

// F17: a host that forwards IPv6 has its default route again as soon as its
// router advertises it, also after its NIC was down. When it forwards no more,
// all its parameters are as before, including those that the kernel changed (I5).
func TestTheRouterOfARouter(t *testing.T) {
	a, n := bare(t)
	router := nettest.New(t)
	for _, each := range []*nettest.Namespace{n, router} {
		each.Sysctl("net/ipv6/conf/default/accept_dad=0")
	}
	n.Pair("up0", router, "down0")
	n.Sysctl("net/ipv6/conf/up0/accept_ra=1")
	n.IP("link add own0 type bridge") // for which alone the host forwards already
	n.Sysctl("net/ipv6/conf/own0/forwarding=1")
	n.Sysctl("net/ipv4/conf/own0/forwarding=1")
	n.Sysctl("net/ipv4/conf/all/accept_redirects=0")
	look := func() string {
		return sh(n, "cd /proc/sys/net; grep . ipv6/conf/up0/accept_ra ipv4/conf/all/accept_redirects ipv?/conf/*/forwarding")
	}
	out := func() bool { return strings.Contains(n.IP("-6 route show default"), "proto ra") }
	advertised := func(when string) {
		t.Helper()
		harness.Wait(t, "the way out "+when, 10*time.Second, func() error {
			if out() {
				return nil
			}
			err := advertise(router, "down0") // the device may not be up yet
			return fmt.Errorf("no default route: %v; %q", err, look())
		})
	}
	before := look()
	advertised("before")
	a.Apply("site", strings.ReplaceAll(routed, "MTU", "1400"))
	if !out() {
		t.Error("the way out went with forwarding")
	}
	n.IP("link set up0 down")
	if out() {
		t.Fatal("a NIC that is down is the way out")
	}
	a.Apply("site", strings.ReplaceAll(routed, "MTU", "1300")) // and so it was looked at everything meanwhile
	n.IP("link set up0 up")
	a.Apply("site", strings.ReplaceAll(routed, "MTU", "1400"))
	advertised("after the flap")
	gone(t, a)
	if now := look(); now != before {
		t.Errorf("the parameters were %q and are %q", before, now)
	}
	if !out() {
		t.Error("the way out went with the network")
	}
}

const routed = `version: 1
networks:
  lan: {bridge: br-hlan, addresses: [10.221.7.1/24, "fd00:221:7::1/64"], mtu: MTU, forwarding: true, nat: true}
`
