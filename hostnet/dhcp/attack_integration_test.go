//go:build integration

package dhcp_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/hostnet/dhcp"
	"hostler/hostnet/firewall"
	"hostler/hostnet/nettest"
	"hostler/internal/hosttest"
)

const (
	discover, request, decline = 1, 3, 4
	offer, ack                 = 2, 5
)

// client speaks DHCP over a NIC under any MAC address and client identifier.
type client struct {
	t     *testing.T
	fd    int
	calls uint32
	mac   net.HardwareAddr // of the last message
}

func newClient(t *testing.T, n *nettest.Namespace, device string) *client {
	t.Helper()
	c := &client{t: t}
	err := n.Do(func() (err error) {
		l, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		if c.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(c.fd, unix.IPPROTO_IP, unix.IP_UNICAST_IF, int(htonl(uint32(l.Index)))); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
			return err
		}
		if err := unix.BindToDevice(c.fd, device); err != nil {
			return err
		}
		return unix.Bind(c.fd, &unix.SockaddrInet4{Port: 68})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(c.fd) })
	_ = unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 300_000})
	return c
}

// send sends a message with the given MAC address and options.
func (c *client) send(kind byte, mac net.HardwareAddr, options ...byte) {
	c.t.Helper()
	m := make([]byte, 240, 300)
	m[0], m[1], m[2] = 1, 1, 6
	c.calls++
	c.mac = mac
	binary.BigEndian.PutUint32(m[4:], c.calls)
	m[10] = 0x80 // answer by broadcast
	copy(m[28:], mac)
	copy(m[236:], []byte{99, 130, 83, 99})
	m = append(append(append(m, 53, 1, kind), options...), 255)
	if err := unix.Sendto(c.fd, m, 0, &unix.SockaddrInet4{Port: 67, Addr: [4]byte{255, 255, 255, 255}}); err != nil {
		c.t.Fatal(err)
	}
}

// answer returns the address from the answer of that kind to the last message,
// or false.
func (c *client) answer(kind byte) (netip.Addr, bool) {
	buf := make([]byte, 1500)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		size, _, err := unix.Recvfrom(c.fd, buf, 0)
		if err == nil && size > 243 && buf[0] == 2 && buf[242] == kind && binary.BigEndian.Uint32(buf[4:]) == c.calls && string(buf[28:34]) == string(c.mac) {
			return netip.AddrFrom4([4]byte(buf[16:20])), true
		}
	}
	return netip.Addr{}, false
}

func wantedAddress(address string) []byte {
	four := netip.MustParseAddr(address).As4()
	return append([]byte{54, 4, 10, 20, 0, 1, 50, 4}, four[:]...)
}

// lease requests an address and accepts the offer.
func (c *client) lease(mac net.HardwareAddr, identity ...byte) (netip.Addr, bool) {
	c.t.Helper()
	c.send(discover, mac, identity...)
	a, ok := c.answer(offer)
	if !ok {
		return a, false
	}
	c.send(request, mac, append(wantedAddress(a.String()), identity...)...)
	return c.answer(ack)
}

// street is a network of hostler with two declared guests.
type street struct {
	server            *dhcp.Server
	network           dhcp.Network
	host              *nettest.Namespace
	attacker, victim  *client
	ownMAC, victimMAC net.HardwareAddr
	first             *nettest.Namespace
	dir               string
}

func newStreet(t *testing.T, filtered bool) *street {
	t.Helper()
	s, dir, host, guest := newServer(t)
	second := nettest.New(t)
	host.Pair("g1", second, "eth0")
	host.IP("link set g1 master br-lan")
	if _, err := os.Stat("/proc/sys/net/bridge"); err == nil { // as Debian has it
		host.Sysctl("net/bridge/bridge-nf-call-iptables=0")
		host.Sysctl("net/bridge/bridge-nf-call-ip6tables=0")
	}
	host.IP("addr add fd00:20::1/64 dev br-lan nodad")
	st := &street{server: s, host: host, first: guest, dir: dir}
	st.ownMAC, _ = net.ParseMAC("02:00:00:00:00:10")
	st.victimMAC, _ = net.ParseMAC("02:00:00:00:00:11")
	for n, mac := range map[*nettest.Namespace]net.HardwareAddr{guest: st.ownMAC, second: st.victimMAC} {
		n.Sysctl("net/ipv6/conf/eth0/accept_dad=0")
		n.IP("link set eth0 down")
		n.IP("link set eth0 address " + mac.String())
		n.IP("link set eth0 up")
	}
	st.network = lan(st.ownMAC.String())
	st.network.Addresses = append(st.network.Addresses, netip.MustParsePrefix("fd00:20::1/64"))
	st.network.Ranges = []dhcp.Range{
		{First: netip.MustParseAddr("10.20.0.100"), Last: netip.MustParseAddr("10.20.0.104")},
		{First: netip.MustParseAddr("fd00:20::1:0"), Last: netip.MustParseAddr("fd00:20::1:4")},
	}
	st.network.Hosts[0].Addresses = append(st.network.Hosts[0].Addresses, netip.MustParseAddr("fd00:20::10"))
	st.network.Hosts = append(st.network.Hosts, dhcp.Host{Name: "db", MAC: st.victimMAC.String(), Addresses: []netip.Addr{
		netip.MustParseAddr("10.20.0.11"), netip.MustParseAddr("fd00:20::11"),
	}})
	if filtered {
		f, err := firewall.New("hostler", host.Runner(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r := firewall.Rules{Networks: []firewall.Network{{Owner: "u1", Bridge: "br-lan", Subnets: st.network.Addresses, Services: true}}}
		for i, h := range st.network.Hosts {
			r.Guests = append(r.Guests, firewall.Guest{Owner: h.Name, Bridge: "br-lan", MAC: h.MAC, Addresses: h.Addresses, Ports: []string{fmt.Sprint("g", i)}})
		}
		if _, err := f.Apply(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	ensure(t, s, st.network, true)
	st.attacker, st.victim = newClient(t, guest, "eth0"), newClient(t, second, "eth0")
	return st
}

// A guest declines its neighbour's address under the neighbour's MAC address.
// Without filters the attack succeeds, which proves that it is real.
// Attack: network
func TestDeclineForAnotherGuestIsIgnored(t *testing.T) {
	own := netip.MustParseAddr("10.20.0.11")
	for _, filtered := range []bool{false, true} {
		st := newStreet(t, filtered)
		if a, ok := st.victim.lease(st.victimMAC); !ok || a != own {
			t.Fatalf("filtered %v: the neighbour gets %v, %v", filtered, a, ok)
		}
		for range 4 {
			st.attacker.send(decline, st.victimMAC, wantedAddress(own.String())...)
		}
		// Answers arrive in the order of the requests.
		if _, ok := st.attacker.lease(st.ownMAC); !ok {
			t.Fatalf("filtered %v: the guest gets no lease in its own name", filtered)
		}
		a, ok := st.victim.lease(st.victimMAC)
		if kept := ok && a == own; kept != filtered {
			t.Errorf("filtered %v: afterwards the neighbour gets %v, %v", filtered, a, ok)
		}
	}
}

// Other guests get their addresses, however many client identifiers a guest
// invents.
// Attack: network
func TestAGuestCannotTakeAllLeases(t *testing.T) {
	st := newStreet(t, true)
	st.network.Hosts = st.network.Hosts[:1] // the neighbour has no fixed address
	ensure(t, st.server, st.network, true)
	for i := range byte(20) {
		st.attacker.lease(st.ownMAC, 61, 4, 0, 1, 2, i) // a client's identity
	}
	for i := range byte(4) { // and in made-up names
		st.attacker.send(discover, net.HardwareAddr{2, 0, 0, 0, 1, i})
		st.attacker.send(request, net.HardwareAddr{2, 0, 0, 0, 1, i}, wantedAddress(fmt.Sprint("10.20.0.", 100+i))...)
	}
	given := solicit(t, st.first, 20)
	if a, ok := st.victim.lease(st.victimMAC); !ok || a.Compare(netip.MustParseAddr("10.20.0.100")) < 0 {
		t.Errorf("the neighbour gets %v, %v", a, ok)
	}
	held := map[netip.Addr]bool{}
	all := leases(t, st.dir)
	for _, l := range all {
		held[netip.MustParseAddr(l[2])] = true
		if l[0] == "0" {
			t.Errorf("the lease of %v never ends", l[2])
		}
	}
	if len(held) > 3 || !held[netip.MustParseAddr("10.20.0.10")] {
		t.Errorf("leases: %+v", all)
	}
	if given != 1 || !held[netip.MustParseAddr("fd00:20::10")] {
		t.Errorf("of IPv6 the guest is given %d addresses, leases %+v", given, all)
	}
}

// solicit requests IPv6 addresses (RFC 8415) under that many client identifiers
// and returns the number of distinct addresses assigned.
func solicit(t *testing.T, n *nettest.Namespace, names byte) int {
	t.Helper()
	var conn *net.UDPConn
	if err := n.Do(func() (err error) {
		conn, err = net.ListenUDP("udp6", &net.UDPAddr{Port: 546})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	to := &net.UDPAddr{IP: net.ParseIP("ff02::1:2"), Port: 547}
	if err := n.Do(func() error {
		l, err := net.InterfaceByName("eth0")
		if err == nil {
			to.Zone = fmt.Sprint(l.Index)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	buf := make([]byte, 1500)
	for i := range names {
		m := []byte{1, 0, 0, i}                                        // SOLICIT
		m = append(m, 0, 1, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 2, i)       // the client's name
		m = append(m, 0, 3, 0, 12, 0, 0, 0, i, 0, 0, 0, 0, 0, 0, 0, 0) // an address
		m = append(append(m, 0, 14, 0, 0), 0, 8, 0, 2, 0, 0)           // at once; time spent
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := conn.WriteToUDP(m, to); err != nil {
			t.Fatal(err)
		}
		for {
			size, _, err := conn.ReadFromUDP(buf)
			if err != nil {
				break
			}
			if size < 4 || buf[3] != i {
				continue
			}
			if at := strings.Index(string(buf[:size]), "\x00\x05\x00\x18"); at > 0 && at+20 <= size {
				given[string(buf[at+4:at+20])] = true
			}
			break
		}
	}
	return len(given)
}

// strangerEnv makes this program wait until its input ends.
const strangerEnv = "DHCP_TEST_STRANGER"

func TestMain(m *testing.M) {
	if os.Getenv(strangerEnv) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Any user may start a program named dnsmasq with our command line. The agent
// does not take it for the network's server, and starts dnsmasq again.
// Attack: network
func TestAProcessOfAnotherUserIsNotTakenForTheServer(t *testing.T) {
	s, dir, _, _ := newServer(t)
	network := lan("02:00:00:00:00:10")
	ensure(t, s, network, true)
	place := hosttest.SocketDir(t)
	program, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.Chmod(place, 0o755), os.WriteFile(filepath.Join(place, "dnsmasq"), program, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	stranger := exec.Command(filepath.Join(place, "dnsmasq"))
	stranger.Args = []string{"/usr/sbin/dnsmasq", "--keep-in-foreground", "--conf-file=" + filepath.Join(dir, "dnsmasq.conf")}
	stranger.Env = []string{strangerEnv + "=1"}
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65001, Gid: 65001}}
	stdin, err := stranger.StdinPipe()
	if err == nil {
		err = stranger.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = stdin.Close(), stranger.Wait() }()
	killed := recorded(t, dir)
	if err := syscall.Kill(killed.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended := func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", killed.PID))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}
	for deadline := time.Now().Add(5 * time.Second); !ended() && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	ensure(t, s, network, true)
	if now := recorded(t, dir); now.PID == stranger.Process.Pid || !s.Running() {
		t.Errorf("the server is %+v, running: %v", now, s.Running())
	}
}

// The package creates an account for dnsmasq.
func TestServerRunsAsItsAccount(t *testing.T) {
	s, dir, _, _ := newServer(t)
	network := lan("02:00:00:00:00:10")
	network.User = "daemon" // on every Debian
	ensure(t, s, network, true)
	info, err := os.Stat(filepath.Join("/proc", fmt.Sprint(recorded(t, dir).PID)))
	if err != nil {
		t.Fatal(err)
	}
	if owner := owner(info); owner != 1 {
		t.Errorf("it runs as user %d", owner)
	}
}

func owner(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }
