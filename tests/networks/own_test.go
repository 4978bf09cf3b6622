//go:build integration

package networks

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hostler/hostnet/nettest"
	"hostler/tests/harness"
)

// own is a host with a NIC of its own and a peer that is its gateway, an agent
// on it, and a connection from the peer to the host.
type own struct {
	*harness.Agent
	t       *testing.T
	n, peer *nettest.Namespace
	session *session
	before  string
}

const (
	bridged   = "version: 1\nnetworks: {up: {bridge: br-up, interfaces: [eth0]}}\n"
	ownBad    = "version: 1\nnetworks: {up: {bridge: br-up, interfaces: [eth0], addresses: [192.0.2.1/24]}}\n"
	ownLimit  = 10 * time.Second // from a bad change to the host as it was
	undoLimit = 20 * time.Second // what a test waits for that
)

// newOwn makes such a host; leased gives it addresses that run out. Tests on
// such hosts run side by side: each has network namespaces of its own, and most
// of the time it waits for deadlines.
func newOwn(t *testing.T, leased bool) *own {
	t.Helper()
	t.Parallel()
	n, peer := nettest.New(t), nettest.New(t)
	for _, side := range []*nettest.Namespace{n, peer} {
		side.Sysctl("net/ipv6/conf/default/accept_dad=0")
	}
	n.Pair("eth0", peer, "gw0")
	n.Sysctl("net/ipv6/conf/eth0/accept_ra=0")
	peer.IP("addr add 192.0.2.1/24 dev gw0")
	peer.IP("-6 addr add 2001:db8::1/64 dev gw0 nodad")
	life, by := "", ""
	if leased {
		life, by = " valid_lft 3600 preferred_lft 1800", " proto dhcp"
	}
	n.IP("addr add 192.0.2.10/24 dev eth0" + life)
	n.IP("-6 addr add 2001:db8::10/64 dev eth0 nodad" + life)
	n.IP("route add default via 192.0.2.1 dev eth0 metric 100" + by)
	n.IP("-6 route add default via 2001:db8::1 dev eth0" + by)
	harness.Wait(t, "the NIC", 10*time.Second, func() error {
		if table := n.IP("-6 route show table local"); strings.Count(table, "local") < 3 {
			return fmt.Errorf("its local addresses are %s", table)
		}
		return nil
	})
	a := harness.NewAgent(t, t.TempDir())
	a.Configure("namespace: own\n")
	// The host's own folder of kernel parameters is left alone.
	a.Prefix = []string{
		"nsenter", "--net=" + n.Path(), "--", "unshare", "--mount", "sh", "-c", `mount -t tmpfs none /etc/sysctl.d && exec "$@"`, "sh",
	}
	o := &own{Agent: a, t: t, n: n, peer: peer, before: ownState(n)}
	o.session = newSession(t, n, peer)
	t.Cleanup(func() {
		harness.Wait(t, "the watchdog's end", time.Minute, func() error {
			if pid := o.watchdog(); pid != 0 {
				return fmt.Errorf("process %d", pid)
			}
			return nil
		})
	})
	return o
}

// ownState is what an independent reader sees, without what changes by itself.
func ownState(n *nettest.Namespace) string {
	var kept []string
	all := n.IP("-o link show") + n.IP("-o addr show") + n.IP("-4 route show table all") + n.IP("-6 route show table all")
	for line := range strings.Lines(all) {
		line = regexp.MustCompile(`(valid|preferred)_lft \S+|expires \S+|linkdown|,?LOWER_UP|NO-CARRIER,| state \S+| nodad| noprefixroute| dynamic| pref medium`).ReplaceAllString(line, "")
		kept = append(kept, strings.Join(strings.Fields(line), " "))
	}
	slices.Sort(kept)
	return strings.Join(kept, "\n")
}

// restored demands that the host is as it was and the connection lives.
func (o *own) restored() {
	o.t.Helper()
	if d := cmp.Diff(strings.Split(o.before, "\n"), strings.Split(ownState(o.n), "\n")); d != "" {
		o.t.Errorf("the host is not as it was: %s\nthe agent wrote:\n%s", d, o.Log())
	}
	o.session.exchange()
}

// onBridge demands that the bridge bears what the NIC had.
func (o *own) onBridge() error {
	link, addresses, routes := o.n.IP("-o link show eth0"), o.n.IP("-o addr show br-up"), o.n.IP("route show default")
	if !strings.Contains(link, "master br-up") || !strings.Contains(addresses, "192.0.2.10/24") ||
		!strings.Contains(addresses, "2001:db8::10/64") || !strings.Contains(routes, "via 192.0.2.1 dev br-up") {
		return fmt.Errorf("%s%s%s", link, addresses, routes)
	}
	return nil
}

// network is the status and the message of network/up.
func (o *own) network() (status, message string) {
	var rows []struct{ Name, Status, Message string }
	out, err := o.Try("get", "networks", "-o", "json")
	if err != nil || json.Unmarshal([]byte(out), &rows) != nil || len(rows) != 1 {
		return "", fmt.Sprint(out, err)
	}
	return rows[0].Status, rows[0].Message
}

// undone waits until the change is undone for a reason.
func (o *own) undone(reason string) {
	o.t.Helper()
	harness.Wait(o.t, "the undoing", undoLimit, func() error {
		if status, message := o.network(); status != "error" || !strings.Contains(message, reason) {
			return fmt.Errorf("%s: %s", status, message)
		}
		return nil
	})
}

// watchdog is the process of the agent's watchdog, 0 without one.
func (o *own) watchdog() int {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range found {
		text, _ := os.ReadFile(path)
		if words := strings.Split(string(text), "\x00"); slices.Contains(words, "watchdog") && slices.Contains(words, filepath.Join(o.Dir, "state")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}

// A NIC comes under a bridge by its declaration and back without it, with
// lasting addresses and with leased ones.
func TestTheHostsOwnNIC(t *testing.T) {
	for name, leased := range map[string]bool{"static": false, "leased": true} {
		t.Run(name, func(t *testing.T) {
			o := newOwn(t, leased)
			o.Start()
			o.Apply("site", bridged)
			if err := o.onBridge(); err != nil {
				t.Error(err)
			}
			o.session.exchange()
			if code, out := o.Exit("plan", "-f", o.File("site", bridged)); code != 0 {
				t.Errorf("the second plan: %d, %s", code, out)
			}
			if out := o.Run("status"); strings.Contains(out, "Guard:") {
				t.Errorf("a change is still armed:\n%s", out)
			}
			// The agent's end and start change nothing.
			before := ownState(o.n)
			o.Kill()
			o.Start()
			if code, out := o.Exit("plan", "-f", o.File("site", bridged)); code != 0 || ownState(o.n) != before {
				t.Errorf("after the agent's start: %d, %s", code, out)
			}
			o.Run("delete", "declaration/site", "--wait", "--timeout", "1m")
			o.restored()
		})
	}
}

// The NIC comes under a bridge that has been a network of its own, and leaves it. The
// rules of that network would drop what comes from the NIC.
func TestTheHostsNICJoinsAnExistingNetwork(t *testing.T) {
	const apart = "version: 1\nnetworks: {up: {bridge: br-up, addresses: [10.221.9.1/24]}}\n"
	o := newOwn(t, false)
	o.Start()
	o.Apply("site", apart)
	joined := strings.Replace(apart, "addresses", "interfaces: [eth0], addresses", 1)
	const warning = "rules of the nftables table inet own_filter name eth0"
	if _, out := o.Exit("plan", "-f", o.File("site", joined)); strings.Contains(out, warning) {
		t.Error(out)
	}
	sh(o.n, `nft 'table inet own_filter { chain in { type filter hook input priority 0; iifname { "eth0", "eth7" } tcp dport 22 accept; }; }'`)
	if _, out := o.Exit("plan", "-f", o.File("site", joined)); !strings.Contains(out, warning) {
		t.Errorf("no warning of the rule of eth0: %s", out)
	}
	o.Apply("site", joined)
	if _, out := o.Exit("plan", "-f", o.File("site", joined)); strings.Contains(out, warning) {
		t.Error(out)
	}
	if err := o.onBridge(); err != nil {
		t.Error(err)
	}
	o.session.exchange()
	if got := strings.TrimSpace(sh(o.n, "sysctl -n net.ipv6.conf.br-up.accept_ra")); got != "0" {
		t.Errorf("accept_ra of the bridge is %s, and the NIC's was 0", got)
	}
	o.Apply("site", apart)
	o.session.exchange()
	o.Run("delete", "declaration/site", "--wait", "--timeout", "1m")
	o.restored()
}

// Z15: a change that cuts the host off is reverted within 10 s, and not tried
// again before the operator says so.
func TestABadChangeOfTheHostsOwnNIC(t *testing.T) {
	t.Run("the gateway's address on the bridge", func(t *testing.T) {
		o := newOwn(t, false)
		o.Start()
		began := time.Now()
		o.Run("apply", "--allow", "destroy", "-f", o.File("site", ownBad))
		o.undone("the default gateway 192.0.2.1 cannot be reached")
		t.Logf("undone %v after it was applied", time.Since(began).Round(time.Millisecond))
		if took := time.Since(began); took > ownLimit {
			t.Errorf("it took %v", took)
		}
		o.restored()
		o.Run("apply", "--allow", "destroy", "-f", o.File("site", bridged), "--wait", "--timeout", "1m")
		if err := o.onBridge(); err != nil {
			t.Error(err)
		}
		o.session.exchange()
		o.Run("delete", "declaration/site", "--wait", "--timeout", "1m")
		o.restored()
	})
	t.Run("the peer is unplugged", func(t *testing.T) {
		o := newOwn(t, false)
		o.Start()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			harness.Wait(t, "the change", undoLimit, func() error { _, err := os.Stat(filepath.Join(o.Dir, "state/guard/checkpoint.json")); return err })
			o.peer.IP("link set gw0 down")
		}()
		o.Run("apply", "--allow", "destroy", "-f", o.File("site", bridged), "--confirm", "2s") // were the peer's end too late
		<-gone
		o.undone("the change was reverted")
		o.peer.IP("link set gw0 up")
		o.peer.IP("addr replace 2001:db8::1/64 dev gw0 nodad")
		o.restored()
		o.Run("delete", "declaration/site", "--wait", "--timeout", "1m")
		o.restored()
	})
	t.Run("without a confirmation", func(t *testing.T) {
		o := newOwn(t, false)
		o.Start()
		o.Run("apply", "--allow", "destroy", "-f", o.File("site", bridged), "--confirm", "5s")
		o.undone("it was not confirmed within 5s")
		o.restored()
		// Tried again, it is confirmed.
		if code, out := o.Exit("apply", "--allow", "destroy", "-f", o.File("site", bridged)); code != 1 || !strings.Contains(out, "hostler retry network/up") {
			t.Errorf("apply again: %d, %s", code, out)
		}
		o.Run("retry", "network/up")
		harness.Wait(t, "the change", undoLimit, func() error { _, err := o.Try("confirm"); return err })
		harness.Wait(t, "the network", undoLimit, func() error {
			if status, message := o.network(); status != "ready" {
				return fmt.Errorf("%s: %s", status, message)
			}
			return o.onBridge()
		})
		o.session.exchange()
		if code, out := o.Exit("revert"); code != 1 || !strings.Contains(out, "nothing can be reverted") {
			t.Errorf("revert: %d, %s", code, out)
		}
		o.Run("delete", "declaration/site", "--wait", "--timeout", "1m")
		o.restored()
	})
}

// A change waits to be confirmed: its watchdog dies and is started again, the
// agent dies and the watchdog undoes it.
func TestTheWatchdogOfTheHostsOwnNIC(t *testing.T) {
	o := newOwn(t, false)
	o.Start()
	o.Run("apply", "--allow", "destroy", "-f", o.File("site", bridged), "--confirm", "8s")
	harness.Wait(t, "the change", undoLimit, func() error {
		if status, message := o.network(); status != "pending" || !strings.Contains(message, "hostler confirm") {
			return fmt.Errorf("%s: %s", status, message)
		}
		return nil
	})
	first := o.watchdog()
	if first == 0 {
		t.Fatal("the change has no watchdog")
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	harness.Wait(t, "another watchdog", 5*time.Second, func() error {
		if pid := o.watchdog(); pid == 0 || pid == first {
			return fmt.Errorf("process %d", pid)
		}
		return nil
	})
	if err := o.onBridge(); err != nil {
		t.Error(err)
	}
	o.Kill()
	harness.Wait(t, "the undoing", undoLimit, func() error {
		_, err := os.Stat(filepath.Join(o.Dir, "state/guard/checkpoint.json"))
		if err == nil {
			return fmt.Errorf("it is still armed")
		}
		return nil
	})
	o.restored()
	o.Start()
	o.undone("it was not confirmed within 8s")
	o.restored()
	o.Run("delete", "declaration/site", "--wait", "--timeout", "1m")
}

// The agent is killed at each crash point, and the next agent completes the
// change: the NIC is under the bridge, with nothing half done.
func TestAgentKilledWhileBridgingTheHostsNIC(t *testing.T) {
	for _, point := range []string{
		"net-checkpoint-armed", "net-bridge-created-unstamped", "net-address-added", "net-enslaved", "net-route-added",
		"net-address-deleted", "net-before-probe", "net-probed-not-committed", "net-committed",
	} {
		t.Run(point, func(t *testing.T) {
			o := newOwn(t, false)
			o.Env = append(o.Env, "HOSTLER_FAILPOINTS="+point+"=kill#1")
			o.Launch("failpoint")
			o.Ready()
			_, _ = o.Try("apply", "--allow", "destroy", "-f", o.File("site", bridged))
			harness.Wait(t, "the agent's end", undoLimit, func() error {
				if !o.Exited() {
					return fmt.Errorf("it runs")
				}
				return nil
			})
			o.session.exchange()
			o.Env = o.Env[:len(o.Env)-1]
			o.Start()
			harness.Wait(t, "the network", undoLimit, func() error {
				if status, message := o.network(); status != "ready" {
					return fmt.Errorf("%s: %s", status, message)
				}
				return o.onBridge()
			})
			o.session.exchange()
			o.Run("delete", "declaration/site", "--wait", "--timeout", "1m")
			o.restored()
		})
	}
}

// session is a TCP connection from the peer to the host and back.
type session struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func newSession(t *testing.T, n, peer *nettest.Namespace) *session {
	t.Helper()
	s := &session{t: t}
	var l net.Listener
	if err := n.Do(func() (err error) { l, err = net.Listen("tcp", "192.0.2.10:2222"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		for in := bufio.NewScanner(c); in.Scan(); {
			_, _ = fmt.Fprintln(c, in.Text())
		}
	}()
	err := peer.Do(func() (err error) { s.conn, err = net.DialTimeout("tcp", "192.0.2.10:2222", 5*time.Second); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.conn.Close() })
	s.in = bufio.NewReader(s.conn)
	s.exchange()
	return s
}

func (s *session) exchange() {
	s.t.Helper()
	_ = s.conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintln(s.conn, "still there"); err != nil {
		s.t.Fatal(err)
	}
	if got, err := s.in.ReadString('\n'); err != nil || got != "still there\n" {
		s.t.Fatalf("the connection did not survive: %q, %v", got, err)
	}
}
