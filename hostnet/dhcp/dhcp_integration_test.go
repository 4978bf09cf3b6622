//go:build integration

package dhcp_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"hostler/hostnet/dhcp"
	"hostler/hostnet/nettest"
	"hostler/internal/run"
)

func lan(mac string) dhcp.Network {
	return dhcp.Network{
		Bridge: "br-lan", Addresses: []netip.Prefix{netip.MustParsePrefix("10.20.0.1/24")},
		Ranges:   []dhcp.Range{{First: netip.MustParseAddr("10.20.0.100"), Last: netip.MustParseAddr("10.20.0.199")}},
		Upstream: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
		Hosts:    []dhcp.Host{{Name: "web", MAC: mac, Addresses: []netip.Addr{netip.MustParseAddr("10.20.0.10")}}},
	}
}

type record struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

func recorded(t *testing.T, dir string) record {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "process"))
	if err != nil {
		t.Fatal(err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func ensure(t *testing.T, s *dhcp.Server, n dhcp.Network, want bool) {
	t.Helper()
	started, err := s.Ensure(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	if started != want {
		t.Errorf("started %v, want %v", started, want)
	}
}

func newServer(t *testing.T) (*dhcp.Server, string, *nettest.Namespace, *nettest.Namespace) {
	t.Helper()
	n, guest := nettest.New(t), nettest.New(t)
	n.IP("link add br-lan type bridge forward_delay 0")
	n.IP("link set br-lan up")
	n.IP("addr add 10.20.0.1/24 dev br-lan")
	n.Pair("g0", guest, "eth0")
	n.IP("link set g0 master br-lan")
	dir := filepath.Join(t.TempDir(), "dhcp")
	s := dhcp.New(dir, n.Runner(), slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := s.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s, dir, n, guest
}

func TestServerIsKept(t *testing.T) {
	s, dir, n, _ := newServer(t)
	network := lan("02:00:00:00:00:10")
	ensure(t, s, network, true)
	ensure(t, s, network, false)
	first := recorded(t, dir)
	// Another process of the agent finds dnsmasq, with and without the record.
	ensure(t, dhcp.New(dir, n.Runner(), slog.New(slog.DiscardHandler)), network, false)
	if err := os.Remove(filepath.Join(dir, "process")); err != nil {
		t.Fatal(err)
	}
	ensure(t, s, network, false)
	if recorded(t, dir) != first {
		t.Errorf("%+v became %+v", first, recorded(t, dir))
	}
	// After a kill dnsmasq is restarted; a changed configuration starts a new
	// process.
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); s.Running() && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	ensure(t, s, network, true)
	network.Hosts = nil
	ensure(t, s, network, true)
	for range 2 {
		if err := s.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s.Running() {
		t.Error("dnsmasq still runs")
	}
}

// F21: a stale record whose pid belongs to another process ends no process.
func TestStaleRecordEndsNoOtherProcess(t *testing.T) {
	s, dir, _, _ := newServer(t)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	stranger, err := run.Host{}.Run(t.Context(), run.Command{Path: "/bin/sleep", Args: []string{"300"}, Detach: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(stranger.PID, syscall.SIGKILL) }()
	data, err := json.Marshal(record{PID: stranger.PID, Start: 1, Boot: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "process"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	ensure(t, s, lan("02:00:00:00:00:10"), true)
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(stranger.PID, 0); err != nil {
		t.Errorf("the stranger was ended: %v", err)
	}
}

// C13: a recorded guest is offered its own address, any other guest an address
// of the range.
func TestOffers(t *testing.T) {
	s, dir, _, guest := newServer(t)
	var mac net.HardwareAddr
	var index int
	if err := guest.Do(func() error {
		l, err := net.InterfaceByName("eth0")
		if err == nil {
			mac, index = l.HardwareAddr, l.Index
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ensure(t, s, lan(mac.String()), true)
	if got := offered(t, guest, index, mac); got != netip.MustParseAddr("10.20.0.10") {
		t.Errorf("the recorded guest is offered %v", got)
	}
	other := net.HardwareAddr{2, 0, 0, 0, 0, 0x99}
	if got := offered(t, guest, index, other); got.Compare(netip.MustParseAddr("10.20.0.100")) < 0 || got.Compare(netip.MustParseAddr("10.20.0.199")) > 0 {
		t.Errorf("another guest is offered %v", got)
	}
	if leases := leases(t, dir); len(leases) != 0 {
		t.Errorf("an offer is no lease: %v", leases)
	}
}

// leases returns the fields of each lease in the file of the server in dir: end,
// hardware address, address, name, client.
func leases(t *testing.T, dir string) (all [][]string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "leases"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 5 {
			all = append(all, fields)
		}
	}
	return all
}

// N12: a recreated bridge is another device to dnsmasq, whose DHCP socket is
// bound to the old device. The restarted dnsmasq serves the new bridge.
func TestBridgeMadeAgainIsServed(t *testing.T) {
	s, dir, n, guest := newServer(t)
	var mac net.HardwareAddr
	var index int
	if err := guest.Do(func() error {
		l, err := net.InterfaceByName("eth0")
		if err == nil {
			mac, index = l.HardwareAddr, l.Index
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	network := lan(mac.String())
	number := func() (index int) {
		t.Helper()
		if err := n.Do(func() error {
			l, err := net.InterfaceByName("br-lan")
			if err == nil {
				index = l.Index
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return index
	}
	network.Index = number()
	ensure(t, s, network, true)
	offered(t, guest, index, mac)
	first := recorded(t, dir)
	n.IP("link del br-lan")
	n.IP("link add br-lan type bridge forward_delay 0")
	n.IP("link set br-lan up")
	n.IP("addr add 10.20.0.1/24 dev br-lan")
	n.IP("link set g0 master br-lan")
	network.Index = number()
	ensure(t, s, network, true)
	ensure(t, s, network, false)
	if recorded(t, dir) == first {
		t.Error("the same dnsmasq runs")
	}
	if got := offered(t, guest, index, mac); got != netip.MustParseAddr("10.20.0.10") {
		t.Errorf("the guest is offered %v", got)
	}
}

// A host's own DNS server often answers with private addresses; guests receive
// them.
func TestPrivateAnswersPass(t *testing.T) {
	s, _, host, guest := newServer(t)
	host.IP("link set lo up")
	host.IP("addr add 192.0.2.53/32 dev lo")
	guest.IP("link set eth0 up")
	guest.IP("addr add 10.20.0.50/24 dev eth0")
	var upstream net.PacketConn
	if err := host.Do(func() (err error) {
		upstream, err = net.ListenPacket("udp", "192.0.2.53:53")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		answerAll(upstream, [4]byte{10, 9, 9, 9})
	}()
	t.Cleanup(func() {
		_ = upstream.Close()
		<-answered
	})
	ensure(t, s, lan("02:00:00:00:00:10"), true)
	found, err := lookup(t, guest, "mirror.example.com.")
	if err != nil || len(found) != 1 || found[0].Unmap() != netip.MustParseAddr("10.9.9.9") {
		t.Errorf("answered %v, %v", found, err)
	}
}

// A name leads to the former address of a guest that is to have another.
func TestNameOfAGuestThatMoves(t *testing.T) {
	s, _, _, guest := newServer(t)
	guest.IP("link set eth0 up")
	guest.IP("addr add 10.20.0.50/24 dev eth0")
	n := lan("02:00:00:00:00:10")
	n.Hosts[0].Named = []netip.Addr{netip.MustParseAddr("10.20.0.9")}
	ensure(t, s, n, true)
	if found, err := lookup(t, guest, "web."); err != nil || len(found) != 1 || found[0].Unmap() != n.Hosts[0].Named[0] {
		t.Errorf("answered %v, %v", found, err)
	}
}

// lookup asks the network's DNS server for a name, from the guest.
func lookup(t *testing.T, guest *nettest.Namespace, name string) ([]netip.Addr, error) {
	t.Helper()
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
		doErr := guest.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, "udp", "10.20.0.1:53")
			return err
		})
		return conn, doErr
	}}
	return resolver.LookupNetIP(t.Context(), "ip4", name)
}

// answerAll answers every query with an IPv4 address until the socket is
// closed.
func answerAll(conn net.PacketConn, address [4]byte) {
	buf := make([]byte, 1500)
	for {
		size, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Additionals = true, nil
		q := m.Questions[0]
		if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: address},
			}}
		}
		if packed, err := m.Pack(); err == nil {
			_, _ = conn.WriteTo(packed, from)
		}
	}
}

// offered requests a DHCP offer (RFC 2131) for a MAC address, with a broadcast
// answer, and returns the offered address.
func offered(t *testing.T, n *nettest.Namespace, index int, mac net.HardwareAddr) netip.Addr {
	t.Helper()
	var fd int
	if err := n.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 500_000})
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_UNICAST_IF, int(htonl(uint32(index)))); err != nil {
		t.Fatal(err)
	}
	if err := unix.BindToDevice(fd, "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 68}); err != nil {
		t.Fatal(err)
	}
	m := make([]byte, 240, 300)
	m[0], m[1], m[2] = 1, 1, 6
	copy(m[4:], []byte{1, 2, 3, mac[5]})
	m[10] = 0x80 // answer by broadcast
	copy(m[28:], mac)
	copy(m[236:], []byte{99, 130, 83, 99})
	m = append(m, 53, 1, 1, 255)
	buf := make([]byte, 1500)
	for range 20 {
		_ = unix.Sendto(fd, m, 0, &unix.SockaddrInet4{Port: 67, Addr: [4]byte{255, 255, 255, 255}})
		size, _, err := unix.Recvfrom(fd, buf, 0)
		if err == nil && size > 240 && buf[0] == 2 && string(buf[28:34]) == string(mac) {
			return netip.AddrFrom4([4]byte(buf[16:20]))
		}
	}
	t.Fatal("no offer in 10 s")
	return netip.Addr{}
}

func htonl(n uint32) uint32 {
	return binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, n))
}
