//go:build integration

package networks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/hostnet/nettest"
	"hostler/tests/harness"
)

// room is a namespace with folders of its own for whoever configures a NIC.
const room = `
cp -a /etc "$0/etc"; mkdir -p "$0/etc/network/if-up.d" "$0/dhcp" "$0/dhcpcd"; rm -rf "$0/etc/resolv.conf" "$0/etc/sysctl.d"
echo made >"$0/etc/resolv.conf"; printf 'iface hup0 inet dhcp\n' >"$0/etc/network/interfaces"
mount --bind "$0/etc" /etc; mount --bind "$0/dhcp" /var/lib/dhcp; mount --bind "$0/dhcpcd" /var/lib/dhcpcd
echo ready; exec sleep infinity`

// The NIC of a host with ifupdown and a DHCP client comes under a bridge and
// back: the lease goes with it, and is renewed where the address is.
func TestTheNICOfDhclient(t *testing.T) {
	for _, c := range []struct{ program, start, file string }{
		{"dhclient", "dhclient -4 -pf /run/dhclient.hup0.pid -lf /var/lib/dhcp/dhclient.hup0.leases hup0", "/run/dhclient.%s.pid"},
		{"dhcpcd", "dhcpcd -4 hup0", "/run/dhcpcd/%s-4.pid"},
		{"dhcpcd that keeps no address", "echo >/etc/dhcpcd.conf; dhcpcd hup0", "/run/dhcpcd/%s.pid"},
	} {
		t.Run(c.program, func(t *testing.T) { moves(t, c.start, c.file) })
	}
}

// leasing is a host whose NIC hup0 has a lease.
type leasing struct {
	n      *nettest.Namespace
	served func() string // the log of the DHCP server
	agent  *harness.Agent
	enter  []string // begins a command on the host
}

// newLeasing starts a client, which begin starts on hup0 and whose pid is in a file
// for each link, and an agent.
func newLeasing(t *testing.T, begin, pidFile string) *leasing {
	t.Helper()
	n, peer := nettest.New(t), nettest.New(t)
	n.Pair("hup0", peer, "gw0")
	n.Sysctl("net/ipv6/conf/hup0/accept_ra=0")
	peer.IP("addr add 192.0.2.1/24 dev gw0")
	_, served := start(t, peer, "exec dnsmasq -d -C /dev/null --port=0 --leasefile-ro --interface=gw0 --bind-interfaces --dhcp-range=192.0.2.50,192.0.2.99,2m --dhcp-option=option:T1,4 --dhcp-option=option:T2,60")
	holder := exec.Command("nsenter", "--net="+n.Path(), "--", "unshare", "--mount", "sh", "-ec", room, t.TempDir())
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal("the namespace is not there: ", err)
	}
	l := &leasing{n: n, served: served, enter: []string{"nsenter", "--target", fmt.Sprint(holder.Process.Pid), "--mount", "--net", "--"}}
	t.Cleanup(func() { endClients(t, n, pidFile) })
	l.in(t, begin)
	l.agent = harness.NewAgent(t, t.TempDir())
	l.agent.Configure("namespace: own\n")
	l.agent.Prefix = l.enter
	l.agent.Start()
	return l
}

// in runs a script on the host.
func (l *leasing) in(t *testing.T, script string) string {
	t.Helper()
	return harness.Run(t, l.enter[0], append(l.enter[1:], "sh", "-c", script)...)
}

// If the agent is gone, the watchdog starts the client again that the change ended.
func TestTheWatchdogStartsDhcpcdAgain(t *testing.T) {
	const pidFile = "/run/dhcpcd/%s-4.pid"
	l := newLeasing(t, "dhcpcd -4 hup0", pidFile)
	had := leased(l.n, "hup0")
	l.agent.Run("apply", "-f", l.agent.File("site", "version: 1\nnetworks: {up: {bridge: br-up, interfaces: [hup0]}}\n"), "--confirm", "10s")
	harness.Wait(t, "the bridge", 10*time.Second, func() error {
		if now := l.in(t, "ip -4 -o addr show dynamic dev br-up 2>&1 || true"); !strings.Contains(now, had) {
			return fmt.Errorf("br-up has %q", now)
		}
		return nil
	})
	if _, err := os.Stat(fmt.Sprintf(pidFile, "hup0")); err == nil {
		t.Fatal("dhcpcd runs during the change")
	}
	l.agent.Kill()
	harness.Wait(t, "the client", 30*time.Second, func() error {
		_, err := os.Stat(fmt.Sprintf(pidFile, "hup0"))
		if now := leased(l.n, "hup0"); err != nil || now != had {
			return fmt.Errorf("hup0 has %q, wanted %q; %v", now, had, err)
		}
		return nil
	})
	asked := len(l.served())
	harness.Wait(t, "a renewal", 30*time.Second, func() error {
		if log := l.served()[asked:]; !strings.Contains(log, "DHCPACK(gw0) "+strings.Split(had, "/")[0]) {
			return errors.New(log)
		}
		return nil
	})
}

// moves tries a client, which begin starts on hup0.
func moves(t *testing.T, begin, pidFile string) {
	l := newLeasing(t, begin, pidFile)
	n, served, a := l.n, l.served, l.agent
	in := func(script string) string { t.Helper(); return l.in(t, script) }
	files := "cd /etc/network; find . -type f ! -name 'hostler-*' -exec md5sum {} +"
	had, before := leased(n, "hup0"), in(files)
	for _, step := range []struct {
		link, other string
		answers     int // to the first request on the new link, and to renewals
		do          func()
	}{
		{"br-up", "hup0", 2, func() { a.Apply("site", "version: 1\nnetworks: {up: {bridge: br-up, interfaces: [hup0]}}\n") }},
		{"hup0", "br-up", 1, func() { a.Run("delete", "declaration/site", "--wait", "--timeout", "1m") }},
	} {
		asked := len(served())
		step.do()
		harness.Wait(t, "the lease on "+step.link, time.Minute, func() error {
			log := served()[asked:]
			if acks := strings.Count(log, "DHCPACK(gw0) "+strings.Split(had, "/")[0]); acks < step.answers {
				return fmt.Errorf("%d answers for %s:\n%s", acks, had, log)
			}
			return nil
		})
		if log := served()[asked:]; strings.Contains(log, "DHCPDISCOVER") || strings.Contains(log, "DHCPNAK") || strings.Contains(log, "DHCPRELEASE") {
			t.Errorf("the lease does not go on:\n%s", log)
		}
		if now := leased(n, step.link); now != had {
			t.Errorf("%s has %q, wanted %q", step.link, now, had)
		}
		if _, err := harness.Try(nil, "test", "-e", fmt.Sprintf(pidFile, step.other)); err == nil {
			t.Errorf("there is a client on %s still", step.other)
		}
		if routes := n.IP("route show default"); !strings.Contains(routes, "via 192.0.2.1 dev "+step.link) || strings.Count(routes, "default") != 1 {
			t.Errorf("the way out is %s", routes)
		}
		if after := in(files); after != before {
			t.Errorf("the person's files were\n%s\nand are\n%s", before, after)
		}
	}
}

// leased is the address of a link that runs out, "" without one.
func leased(n *nettest.Namespace, link string) string {
	fields := strings.Fields(n.IP("-4 -o addr show dynamic dev " + link))
	if len(fields) < 4 {
		return ""
	}
	return fields[3]
}

// endClients ends all processes of a namespace, because a DHCP client leaves its
// process group and dhcpcd has processes that no pid file names. It removes the
// clients' pid files.
func endClients(t *testing.T, n *nettest.Namespace, pidFile string) {
	t.Helper()
	own, err := os.Stat(n.Path())
	if err != nil {
		t.Fatal(err)
	}
	harness.Wait(t, "the end of the clients", 10*time.Second, func() error {
		spaces, err := filepath.Glob("/proc/[0-9]*/ns/net")
		if err != nil {
			return err
		}
		var alive []int
		for _, path := range spaces {
			if space, err := os.Stat(path); err != nil || !os.SameFile(own, space) {
				continue // a process that has ended has no namespace
			}
			pid, err := strconv.Atoi(strings.Split(path, "/")[2])
			if err != nil {
				return err
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			alive = append(alive, pid)
		}
		if len(alive) > 0 {
			return fmt.Errorf("processes %v run", alive)
		}
		return nil
	})
	for _, link := range []string{"hup0", "br-up"} {
		if err := os.Remove(fmt.Sprintf(pidFile, link)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}
