//go:build integration

package firewall_test

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
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
	host6            = "fd000020000000000000000000000001"
	link6            = "fe800000000000000000000000000010"
	// Link-local addresses derived from MAC addresses, and a random address.
	ownLocal    = "fe80000000000000000000fffe000010"
	otherLocal  = "fe80000000000000000000fffe000011"
	randomLocal = "fe800000000000001234567812345678"
	// Addresses that guests make of an advertised prefix (SLAAC).
	ownSLAAC     = "20010db800000000000000fffe000010"
	otherSLAAC   = "20010db800000000000000fffe000011"
	privateSLAAC = "20010db8000000001234567812345678"
	nobody6      = "00000000000000000000000000000000"
	allNodes     = "ff020000000000000000000000000001"
)

func ethernet(source, kind, payload string) string { return "ffffffffffff" + source + kind + payload }

func arp(mac, ip string) string {
	return "0001" + "0800" + "06" + "04" + "0002" + mac + ip + ownMAC + other4
}

// ip4 is a UDP datagram from one port to another, ip6 a packet with the given
// payload. Each frame's mark adds eight bytes. Bridges check the lengths and
// the IPv4 checksum.
func ip4(source string) string { return udp4(source, 0x1000, 0x2000, "0000", "", "") }

func udp4(source string, from, to int, fragment, options, payload string) string {
	length := len(payload)/2 + 8 + 8
	words := 5 + len(options)/8
	header := func(sum uint16) string {
		return fmt.Sprintf("4%x00%04x0000%s4011%04x", words, 4*words+length, fragment, sum) + source + other4 + options
	}
	raw, _ := hex.DecodeString(header(0))
	sum := uint32(0)
	for i := 0; i < len(raw); i += 2 {
		sum += uint32(raw[i])<<8 | uint32(raw[i+1])
	}
	return header(^uint16(sum&0xffff+sum>>16)) + fmt.Sprintf("%04x%04x%04x0000", from, to, length) + payload
}

// bootp is the beginning of a DHCP request of a client with the MAC address.
func bootp(mac string) string {
	return "01010600" + strings.Repeat("00", 24) + mac + strings.Repeat("00", 10)
}

// before puts an extension header in front of an ICMPv6 message; after makes
// the message the first of two fragments.
func before(payload string) string { return "3a00010400000000" + payload }

func fragmented(payload string) string { return "3a00000100000001" + payload }

func ip6(source, next, payload string) string {
	return fmt.Sprintf("60000000%04x%sff", len(payload)/2+8, next) + source + allNodes + payload
}

func advert(kind, target string) string { return kind + "00" + "0000" + "00000000" + target }

// packets opens a socket for raw frames in the namespace.
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

// The neighbours on the same bridge do not receive frames of a guest that
// spoofs another MAC or IP address.
// Attack: network
func TestAGuestInAnothersName(t *testing.T) {
	s := newSite(t)
	bridgesAlone(t, s.host)
	from, to := packets(t, s.guest, "eth0"), packets(t, s.second, "eth0")
	f := newFirewall(t, s.host, "hostler")
	r := rules()
	r.Guests[0].Ports = []string{"g0"}
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
		{"a router's advertisement", ethernet(ownMAC, "86dd", ip6(link6, "3a", advert("86", own6))), false, false},
		{"a router's advertisement behind another header", ethernet(ownMAC, "86dd", ip6(link6, "00", before(advert("86", own6)))), false, false},
		{"a router's advertisement in fragments", ethernet(ownMAC, "86dd", ip6(link6, "2c", fragmented(advert("86", own6)))), false, false},
		{"a redirection", ethernet(ownMAC, "86dd", ip6(link6, "3a", advert("89", own6))), false, false},
		{"a router's solicitation", ethernet(ownMAC, "86dd", ip6(ownLocal, "3a", advert("85", own6))), true, true},
		{"a neighbour's solicitation", ethernet(ownMAC, "86dd", ip6(own6, "3a", advert("87", other6))), true, true},
		{"a solicitation behind another's address", ethernet(ownMAC, "86dd", ip6(otherLocal, "3a", advert("87", own6))), false, false},
		{"its link-local address made of its MAC address", ethernet(ownMAC, "86dd", ip6(ownLocal, "3a", advert("88", ownLocal))), true, true},
		{"a random link-local address", ethernet(ownMAC, "86dd", ip6(randomLocal, "3a", advert("88", randomLocal))), true, true},
		{"another's link-local address", ethernet(ownMAC, "86dd", ip6(otherLocal, "3a", advert("80", own6))), false, false},
		{"the neighbour advertisement of another's link-local address", ethernet(ownMAC, "86dd", ip6(ownLocal, "3a", advert("88", otherLocal))), false, false},
		{"the same behind another header", ethernet(ownMAC, "86dd", ip6(ownLocal, "00", before(advert("88", otherLocal)))), false, false},
		{"the question whether its address is free", ethernet(ownMAC, "86dd", ip6(nobody6, "3a", advert("87", own6))), true, true},
		{"that of its link-local address too", ethernet(ownMAC, "86dd", ip6(nobody6, "3a", advert("87", ownLocal))), true, true},
		{"the question that keeps another from its address", ethernet(ownMAC, "86dd", ip6(nobody6, "3a", advert("87", other6))), true, false},
		{"and from its link-local address", ethernet(ownMAC, "86dd", ip6(nobody6, "3a", advert("87", otherLocal))), false, false},
		{"DHCP", ethernet(ownMAC, "0800", udp4("00000000", 68, 67, "0000", "", bootp(ownMAC))), true, true},
		{"DHCP in another's name", ethernet(ownMAC, "0800", udp4("00000000", 68, 67, "0000", "", bootp(otherMAC))), false, false},
		{"DHCP in another's name with an option of IP", ethernet(ownMAC, "0800", udp4("00000000", 68, 67, "0000", "01010101", bootp(otherMAC))), false, false},
		{"the first fragment of DHCP", ethernet(ownMAC, "0800", udp4("00000000", 68, 67, "2000", "", "")), false, false},
		{"what a DHCP server says", ethernet(ownMAC, "0800", udp4(own4, 67, 68, "0000", "", bootp(otherMAC))), false, false},
		{"what one of IPv6 says", ethernet(ownMAC, "86dd", ip6(ownLocal, "11", "0223022200140000"+"07000000")), false, false},
		{"what its client asks", ethernet(ownMAC, "86dd", ip6(ownLocal, "11", "0222022300140000"+"01000000")), true, true},
		{"a frame of a VLAN", ethernet(ownMAC, "8100", "0005"+"0800"+ip4(other4)), true, false},
		{"some other protocol", ethernet(ownMAC, "88cc", ip4(other4)), true, false},
		{"its address of an advertised prefix", ethernet(ownMAC, "86dd", ip6(ownSLAAC, "3a", advert("88", ownSLAAC))), true, false},
		{"a private address of that prefix", ethernet(ownMAC, "86dd", ip6(privateSLAAC, "3a", advert("88", privateSLAAC))), true, false},
		{"another's address of that prefix", ethernet(ownMAC, "86dd", ip6(otherSLAAC, "3a", advert("80", own6))), true, false},
		{"the claim of another's address of that prefix", ethernet(ownMAC, "86dd", ip6(ownLocal, "3a", advert("88", otherSLAAC))), true, false},
		{"the question that keeps another from it", ethernet(ownMAC, "86dd", ip6(nobody6, "3a", advert("87", otherSLAAC))), true, false},
		{"the host's IPv6 address", ethernet(ownMAC, "86dd", ip6(host6, "3a", advert("80", host6))), true, false},
		{"the neighbour advertisement of the host's address", ethernet(ownMAC, "86dd", ip6(ownLocal, "3a", advert("88", host6))), true, false},
		{"the question that keeps the host from its address", ethernet(ownMAC, "86dd", ip6(nobody6, "3a", advert("87", host6))), true, false},
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
	// On a network over the host's NIC, a guest with IPv4 addresses alone may use
	// the IPv6 addresses that it makes of the advertised prefix.
	r.Guests[0].Addresses = []netip.Addr{netip.MustParseAddr("10.20.0.10")}
	lan := r
	lan.Networks, lan.Publish = []firewall.Network{{Owner: "u1", Bridge: "br-lan", Forward: true, HostAccess: true}}, nil
	apply(t, f, lan, true)
	slaac := []string{"its address of an advertised prefix", "a private address of that prefix"}
	// Addresses that are not declared cannot be told from addresses of the prefix.
	undeclared := []string{
		"another's IPv6 address", "another's neighbour advertisement", "the question that keeps another from its address",
		"the host's IPv6 address", "the neighbour advertisement of the host's address", "the question that keeps the host from its address",
	}
	hear("with an IPv4 address on the LAN", func(i int) bool {
		return frames[i].fixed || slices.Contains(slaac, frames[i].what) || slices.Contains(undeclared, frames[i].what)
	})
	// Addresses of the host and of other guests are refused. Another interface of
	// the same machine is no other guest: own6 is still heard.
	declared := lan
	declared.Networks = slices.Clone(lan.Networks)
	declared.Networks[0].Addresses = []netip.Addr{netip.MustParseAddr("fd00:20::1")}
	declared.Guests = append(slices.Clone(lan.Guests),
		firewall.Guest{Owner: "m1", Bridge: "br-lan", MAC: "02:00:00:00:00:12", Addresses: []netip.Addr{netip.MustParseAddr("fd00:20::10")}},
		firewall.Guest{Owner: "m2", Bridge: "br-lan", MAC: "02:00:00:00:00:11", Addresses: []netip.Addr{netip.MustParseAddr("fd00:20::11")}})
	apply(t, f, declared, true)
	apply(t, f, declared, false)
	hear("on the LAN with declared addresses", func(i int) bool { return frames[i].fixed || slices.Contains(slaac, frames[i].what) })
	// Without another interface, no address is exempt from the sets.
	declared.Guests = slices.Delete(declared.Guests, 1, 2)
	apply(t, f, declared, true)
	hear("on the LAN with one interface", func(i int) bool { return frames[i].fixed || slices.Contains(slaac, frames[i].what) })
	// A router sends for others. Its MAC address stays its own.
	lan.Guests = []firewall.Guest{lan.Guests[0]}
	lan.Guests[0].Router = true
	apply(t, f, lan, true)
	refused := []string{
		"another's MAC address", "another's MAC address in ARP", "another's MAC and IPv4 address", "a solicitation behind another's address",
		"another's link-local address", "the neighbour advertisement of another's link-local address", "the same behind another header",
		"and from its link-local address", "the first fragment of DHCP",
	}
	hear("as a router", func(i int) bool { return !slices.Contains(refused, frames[i].what) })
	// The neighbour's port is not filtered, and all rules go with their owner.
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

// bridgesAlone keeps bridged frames out of iptables, as is the default on
// Debian.
func bridgesAlone(t *testing.T, n *nettest.Namespace) {
	t.Helper()
	if _, err := os.Stat("/proc/sys/net/bridge"); err == nil {
		n.Sysctl("net/bridge/bridge-nf-call-iptables=0")
		n.Sysctl("net/bridge/bridge-nf-call-ip6tables=0")
		n.Sysctl("net/bridge/bridge-nf-call-arptables=0")
	}
}

// A guest claims the host's and another neighbour's addresses, and claims to be
// the router. With the filters, the neighbour's kernel accepts none of it and
// still learns the true addresses.
// Attack: network
func TestANeighbourKeepsWhatItKnows(t *testing.T) {
	for _, filtered := range []bool{false, true} {
		s := newSite(t)
		bridgesAlone(t, s.host)
		s.host.IP("link set br-lan down")
		s.host.IP("link set br-lan address 02:00:00:00:00:01")
		s.host.IP("link set br-lan up")
		s.host.IP("addr add fd00:20::1/64 dev br-lan nodad")
		s.guest.IP("addr add fd00:20::10/64 dev eth0 nodad")
		s.second.IP("addr add fd00:20::11/64 dev eth0 nodad")
		s.second.Sysctl("net/ipv6/conf/eth0/accept_ra=2")
		if filtered {
			r := rules()
			r.Guests[0].Ports = []string{"g0"}
			r.Guests = append(r.Guests, firewall.Guest{Owner: "m2", Bridge: "br-lan", MAC: "02:00:00:00:00:11", Ports: []string{"g1"}, Addresses: []netip.Addr{
				netip.MustParseAddr("10.20.0.11"), netip.MustParseAddr("fd00:20::11"),
			}})
			apply(t, newFirewall(t, s.host, "hostler"), r, true)
		}
		for _, address := range []string{"10.20.0.1", "10.20.0.10", "fd00:20::1", "fd00:20::10", "fe80::ff:fe00:1"} {
			learns(t, s.second, address)
		}
		from, to := packets(t, s.guest, "eth0"), packets(t, s.second, "eth0")
		send := func(frame string) {
			t.Helper()
			raw, err := hex.DecodeString(frame)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Write(from, raw); err != nil {
				t.Fatal(err)
			}
		}
		const stolen = "02000000feed"
		mine := "0201" + stolen
		for _, a := range []string{"fd000020000000000000000000000001", "fe800000000000000000" + "00fffe000001"} {
			send(ethernet(ownMAC, "86dd", icmp6(ownLocal, "88"+"00"+"0000"+"20000000"+a+mine)))
		}
		send(ethernet(ownMAC, "0806", "0001"+"0800"+"06"+"04"+"0002"+stolen+"0a140001"+"020000000011"+other4))
		send(ethernet(ownMAC, "86dd", icmp6(ownLocal, "86"+"00"+"0000"+"40000708"+"0000000000000000"+"0101"+ownMAC)))
		send(ethernet(ownMAC, "0800", ip4(own4)) + hex.EncodeToString([]byte("the last")))
		for end, buffer := time.Now().Add(5*time.Second), make([]byte, 2048); ; {
			if n, _, err := unix.Recvfrom(to, buffer, 0); err == nil && strings.Contains(string(buffer[:n]), "the last") {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the last frame is not heard")
			}
		}
		taken := func(known string) bool {
			return strings.Contains(known, "02:00:00:00:fe:ed") || strings.Contains(known, "proto ra")
		}
		known := func() string { return s.second.IP("neigh show dev eth0") + s.second.IP("-6 route show default") }
		if now := known(); filtered && taken(now) {
			t.Errorf("the neighbour knows\n%s", now)
		}
		if !filtered { // the attack is real
			for end := time.Now().Add(5 * time.Second); !taken(known()); {
				if time.Now().After(end) {
					t.Fatalf("without filters the neighbour knows\n%s", known())
				}
			}
		}
	}
}

// learns waits until a guest has learned the MAC address of a neighbour.
func learns(t *testing.T, n *nettest.Namespace, address string) {
	t.Helper()
	if err := n.Do(func() error {
		zone := ""
		if strings.HasPrefix(address, "fe80") { // by its number: names are kept across namespaces
			l, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			zone = fmt.Sprintf("%%%d", l.Index)
		}
		c, err := net.Dial("udp", net.JoinHostPort(address+zone, "9"))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_, err = c.Write([]byte("x"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); !strings.Contains(n.IP("neigh show "+address+" dev eth0"), "lladdr"); {
		if time.Now().After(end) {
			t.Fatalf("nobody answers for %s", address)
		}
	}
}

// icmp6 is an ICMPv6 message to all nodes, with its checksum.
func icmp6(source, payload string) string {
	raw, _ := hex.DecodeString(source + allNodes + fmt.Sprintf("%08x", len(payload)/2) + "0000003a" + payload)
	sum := uint32(0)
	for i := 0; i+1 < len(raw); i += 2 {
		sum += uint32(raw[i])<<8 | uint32(raw[i+1])
	}
	sum = sum&0xffff + sum>>16
	payload = payload[:4] + fmt.Sprintf("%04x", ^uint16(sum+sum>>16)) + payload[8:]
	return fmt.Sprintf("60000000%04x3aff", len(payload)/2) + source + allNodes + payload
}

func rules2() firewall.Rules {
	r := rules()
	r.Guests[0].Ports = []string{"g0"}
	return r
}
