//go:build integration

package firewall_test

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/hostnet/firewall"
	"hostler/hostnet/nettest"
)

const (
	ownMAC, otherMAC = "020000000010", "020000000011"
	own4, other4     = "0a14000a", "0a14000b"
	own6             = "fd000020000000000000000000000010"
	other6           = "fd000020000000000000000000000011"
	link6            = "fe800000000000000000000000000010"
	allNodes         = "ff020000000000000000000000000001"
)

func ethernet(source, kind, payload string) string { return "ffffffffffff" + source + kind + payload }

func arp(mac, ip string) string {
	return "0001" + "0800" + "06" + "04" + "0002" + mac + ip + ownMAC + other4
}

// ip4 is a datagram of UDP, ip6 a packet with the given payload; the mark that
// each frame gets is eight bytes more. Bridges look at the lengths and at the
// checksum of IPv4.
func ip4(source string) string {
	header := func(sum uint16) string {
		return "4500002400004000" + "4011" + fmt.Sprintf("%04x", sum) + source + other4
	}
	raw, _ := hex.DecodeString(header(0))
	sum := uint32(0)
	for i := 0; i < len(raw); i += 2 {
		sum += uint32(raw[i])<<8 | uint32(raw[i+1])
	}
	return header(^uint16(sum+sum>>16)) + "1000" + "2000" + "0010" + "0000"
}

func ip6(source, next, payload string) string {
	return fmt.Sprintf("60000000%04x%sff", len(payload)/2+8, next) + source + allNodes + payload
}

func advert(kind, target string) string { return kind + "00" + "0000" + "00000000" + target }

// packets opens a socket for whole frames in the namespace.
func packets(t *testing.T, n *nettest.Namespace, device string) int {
	t.Helper()
	fd := -1
	err := n.Do(func() error {
		i, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	timeout := unix.NsecToTimeval(int64(100 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		t.Fatal(err)
	}
	return fd
}

// A guest that fakes another's MAC or IP address is not heard by its
// neighbours on the same bridge.
func TestAGuestInAnothersName(t *testing.T) {
	s := newSite(t)
	from, to := packets(t, s.guest, "eth0"), packets(t, s.second, "eth0")
	f := newFirewall(t, s.host, "hostler")
	r := rules()
	r.Guests[0].Port = "g0"
	frames := []struct {
		what, frame string
		free, fixed bool // heard of a guest without addresses of its own, and with
	}{
		{"IPv4", ethernet(ownMAC, "0800", ip4(own4)), true, true},
		{"before it has an address", ethernet(ownMAC, "0800", ip4("00000000")), true, true},
		{"ARP", ethernet(ownMAC, "0806", arp(ownMAC, own4)), true, true},
		{"an ARP probe", ethernet(ownMAC, "0806", arp(ownMAC, "00000000")), true, true},
		{"IPv6", ethernet(ownMAC, "86dd", ip6(own6, "3a", advert("80", own6))), true, true},
		{"link-local IPv6", ethernet(ownMAC, "86dd", ip6(link6, "3a", advert("80", own6))), true, true},
		{"its neighbour advertisement", ethernet(ownMAC, "86dd", ip6(own6, "3a", advert("88", own6))), true, true},
		{"that of its link-local address", ethernet(ownMAC, "86dd", ip6(own6, "3a", advert("88", link6))), true, true},
		{"another's MAC address", ethernet(otherMAC, "0800", ip4(own4)), false, false},
		{"another's MAC address in ARP", ethernet(ownMAC, "0806", arp(otherMAC, own4)), false, false},
		{"another's IPv4 address", ethernet(ownMAC, "0800", ip4(other4)), true, false},
		{"another's IPv4 address in ARP", ethernet(ownMAC, "0806", arp(ownMAC, other4)), true, false},
		{"another's MAC and IPv4 address", ethernet(otherMAC, "0800", ip4(other4)), false, false},
		{"another's IPv6 address", ethernet(ownMAC, "86dd", ip6(other6, "3a", advert("80", other6))), true, false},
		{"another's neighbour advertisement", ethernet(ownMAC, "86dd", ip6(link6, "3a", advert("88", other6))), true, false},
		{"a router's advertisement", ethernet(ownMAC, "86dd", ip6(link6, "3a", advert("86", own6))), true, false},
		{"a frame of a VLAN", ethernet(ownMAC, "8100", "0005"+"0800"+ip4(other4)), true, false},
		{"some other protocol", ethernet(ownMAC, "88cc", ip4(other4)), true, false},
	}
	hear := func(what string, want func(i int) bool) {
		t.Helper()
		for i, each := range append(slices.Clone(frames), frames[0]) {
			raw, err := hex.DecodeString(each.frame)
			if err != nil {
				t.Fatal(each.what, err)
			}
			if _, err := unix.Write(from, append(raw, fmt.Sprintf("frame %02d", i)...)); err != nil {
				t.Fatal(each.what, err)
			}
		}
		heard, buffer := map[int]bool{}, make([]byte, 2048)
		for end := time.Now().Add(5 * time.Second); !heard[len(frames)]; {
			if time.Now().After(end) {
				t.Fatalf("%s: the last frame is not heard", what)
			}
			n, _, err := unix.Recvfrom(to, buffer, 0)
			if err != nil {
				continue
			}
			if _, mark, ok := strings.Cut(string(buffer[:n]), "frame "); ok {
				var i int
				_, _ = fmt.Sscanf(mark, "%d", &i)
				heard[i] = true
			}
		}
		for i, each := range frames {
			if heard[i] != want(i) {
				t.Errorf("%s: %s is heard %v, want %v", what, each.what, heard[i], want(i))
			}
		}
	}
	hear("without filters", func(int) bool { return true })
	apply(t, f, r, true)
	apply(t, f, r, false)
	hear("with addresses", func(i int) bool { return frames[i].fixed })
	nft(s.host, "delete", "table", "bridge", "hostler")
	apply(t, f, r, true)
	r.Guests[0].Addresses = nil
	apply(t, f, r, true)
	hear("without addresses", func(i int) bool { return frames[i].free })
	// Its neighbour is not filtered by its port, and all goes with its owner.
	r.Guests[0].Addresses = []netip.Addr{netip.MustParseAddr("10.20.0.10")}
	apply(t, f, r, true)
	r.Guests = nil
	apply(t, f, r, true)
	hear("without the guest", func(int) bool { return true })
	if tables := nft(s.host, "list", "tables"); strings.Contains(tables, "table bridge") {
		t.Errorf("there is still %s", tables)
	}
	apply(t, f, rules2(), true)
	if changed, err := f.Remove(t.Context()); err != nil || !changed {
		t.Error(changed, err)
	}
	if tables := nft(s.host, "list", "tables"); strings.Contains(tables, "hostler") {
		t.Errorf("there is still %s", tables)
	}
}

func rules2() firewall.Rules {
	r := rules()
	r.Guests[0].Port = "g0"
	return r
}
