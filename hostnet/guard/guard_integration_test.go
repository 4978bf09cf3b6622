//go:build integration

package guard

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
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

	"hostler/hostnet"
	"hostler/hostnet/nettest"
	"hostler/internal/fault"
	"hostler/internal/run"
)

// TestMain also serves as the tests' watchdog, in a separate process.
func TestMain(m *testing.M) {
	if dir := os.Getenv("GUARD_WATCHDOG"); dir != "" {
		h, err := hostnet.Open(hostnet.Options{NetNS: os.Getenv("GUARD_NETNS")})
		if err == nil {
			_, err = Watch(context.Background(), Options{Dir: dir, Host: h, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if dir := os.Getenv("GUARD_AGENT"); dir != "" {
		if err := agentProcess(dir, os.Getenv("GUARD_NETNS"), os.Getenv("GUARD_WAY")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// Most of the time, these tests wait for deadlines.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// agentProcess is an agent in a separate process, for builds with crash points.
var agentProcess = func(dir, namespace, way string) error { return errors.New("no crash points") }

// fixture is a host with a NIC, its peer, and the host's guard, in network
// namespaces of its own.
type fixture struct {
	t       *testing.T
	n, peer *nettest.Namespace
	host    *hostnet.Host
	dir     string
	guard   *Guard
	before  string
	session *session
	// dead prevents a restart of the watchdog.
	dead bool
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	w := &fixture{t: t, n: nettest.New(t), peer: nettest.New(t), dir: filepath.Join(t.TempDir(), "guard")}
	w.n.Pair("eth0", w.peer, "up0")
	w.peer.IP("addr add 192.0.2.1/24 dev up0")
	w.peer.IP("addr add 2001:db8::1/64 dev up0 nodad")
	w.peer.IP("addr add 198.51.100.1/32 dev lo")
	w.n.IP("addr add 192.0.2.10/24 dev eth0")
	w.n.IP("addr add 2001:db8::10/64 dev eth0 nodad")
	w.n.IP("route add default via 192.0.2.1 dev eth0 metric 100")
	w.n.IP("-6 route add default via 2001:db8::1 dev eth0")
	w.n.IP("neigh add 192.0.2.99 lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
	var err error
	w.host, err = hostnet.Open(hostnet.Options{NetNS: w.n.Path()})
	must(t, err)
	t.Cleanup(w.host.Close)
	// The kernel adds the NIC's link-local address some time after it is up.
	eventually(t, "the address fe80::", 5*time.Second, func() bool {
		return strings.Contains(w.n.IP("-6 addr show dev eth0 scope link -tentative"), "fe80::")
	})
	w.guard = w.newGuard(defaultLimit)
	w.before = stable(w.n)
	w.session = newSession(t, w.n, w.peer)
	t.Cleanup(func() {
		if pid := w.watchdog(); pid != 0 {
			eventually(t, "the watchdog's end", 20*time.Second, func() bool { return w.watchdog() == 0 })
		}
	})
	return w
}

func (w *fixture) newGuard(limit time.Duration) *Guard {
	return New(Options{
		Dir: w.dir, Namespace: "hostler", Host: w.host, Limit: limit,
		Start:  w.start,
		Probes: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("198.51.100.1")} },
		Log:    slog.New(slog.NewTextHandler(w.t.Output(), nil)),
	})
}

func (w *fixture) start(ctx context.Context) error {
	if w.dead {
		return fmt.Errorf("there is no room for another process")
	}
	return startWatchdog(ctx, w.dir, w.n.Path())
}

func startWatchdog(ctx context.Context, dir, namespace string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = run.Host{}.Run(ctx, run.Command{
		Path: self, Detach: filepath.Join(filepath.Dir(dir), "watchdog.log"),
		Env: []string{"GUARD_WATCHDOG=" + dir, "GUARD_NETNS=" + namespace},
	})
	return err
}

func without(steps []hostnet.Step, op hostnet.Op) []hostnet.Step {
	return slices.DeleteFunc(steps, func(s hostnet.Step) bool { return s.Op == op })
}

// watchdog returns the pid of the watchdog, or 0.
func (w *fixture) watchdog() int {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")); err == nil && strings.Contains(string(env), "GUARD_WATCHDOG="+w.dir+"\x00") {
			return pid
		}
	}
	return 0
}

// killWatchdog waits for a watchdog other than after, kills it and returns its
// pid. It never signals pid 0, which means the test's own process group.
func (w *fixture) killWatchdog(after int) (pid int) {
	w.t.Helper()
	eventually(w.t, "a watchdog", 10*time.Second, func() bool {
		pid = w.watchdog()
		return pid != 0 && pid != after
	})
	must(w.t, syscall.Kill(pid, syscall.SIGKILL))
	return pid
}

// bridging returns the steps that put eth0 under br-up.
func (w *fixture) bridging() []hostnet.Step {
	w.t.Helper()
	o := w.observe()
	had, err := hostnet.Carry(o, "eth0")
	must(w.t, err)
	steps, problems := hostnet.Plan(hostnet.Wanted{
		Namespace: "hostler", Bridges: []hostnet.Bridge{{Name: "br-up", UID: "u", Ports: []string{"eth0"}}},
		NICSettings: map[string]hostnet.NICSettings{"eth0": had},
	}, o)
	if len(problems) > 0 {
		w.t.Fatal(problems)
	}
	return steps
}

func (w *fixture) observe() hostnet.Observed {
	w.t.Helper()
	o, err := w.host.Observe(w.t.Context())
	must(w.t, err)
	return o
}

// restored checks that the host has its previous state and the connection is
// alive.
func (w *fixture) restored() {
	w.t.Helper()
	if d := cmp.Diff(strings.Split(w.before, "\n"), strings.Split(stable(w.n), "\n")); d != "" {
		w.t.Errorf("the host is not as it was: %s", d)
	}
	w.session.exchange()
	if _, armed := w.guard.Armed(); armed {
		w.t.Error("the change is still armed")
	}
}

func (w *fixture) bridged() {
	w.t.Helper()
	if got := w.n.IP("-o link show eth0"); !strings.Contains(got, "master br-up") {
		w.t.Errorf("eth0 is not under the bridge: %s", got)
	}
	if got := w.n.IP("-o addr show br-up"); !strings.Contains(got, "192.0.2.10/24") {
		w.t.Errorf("the bridge has %s", got)
	}
	w.session.exchange()
}

// timers matches output that changes by itself. It includes the carrier, which
// the kernel reports late; the connection through the NIC proves it.
var timers = regexp.MustCompile(`\S*_timer +\S+|NO-CARRIER,| state \S+`)

// stable returns the state seen by an independent tool, in a fixed order.
func stable(n *nettest.Namespace) string {
	var kept []string
	all := n.IP("-d -o link show") + n.IP("-o addr show") + n.IP("-4 route show table all") + n.IP("-6 route show table all") + n.IP("neigh show nud permanent")
	for line := range strings.Lines(all) {
		line = timers.ReplaceAllString(line, "")
		for _, word := range []string{" pref medium", " noprefixroute", " nodad", " linkdown", ",LOWER_UP"} {
			line = strings.ReplaceAll(line, word, "")
		}
		kept = append(kept, strings.Join(strings.Fields(line), " "))
	}
	slices.Sort(kept)
	return strings.Join(kept, "\n")
}

// session is a TCP connection from the peer to the host and back.
type session struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func newSession(t *testing.T, n, peer *nettest.Namespace) *session {
	t.Helper()
	var l net.Listener
	must(t, n.Do(func() (err error) { l, err = net.Listen("tcp", "192.0.2.10:2222"); return err }))
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
	s := &session{t: t}
	must(t, peer.Do(func() (err error) {
		s.conn, err = net.DialTimeout("tcp", "192.0.2.10:2222", 5*time.Second)
		return err
	}))
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, limit time.Duration, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

func wantKind(t *testing.T, err error, kind fault.Kind) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Fatalf("the error is %v (%s), want %s", err, fault.KindOf(err), kind)
	}
}
