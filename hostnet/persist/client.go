package persist

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// client is the DHCP client of a link.
type client struct {
	program string // dhclient or dhcpcd
	pid     int    // 0 if Pause ended dhcpcd
	four    bool   // dhcpcd serves IPv4 only
	file    string // the path of the pid file; "" if Pause ended dhcpcd
}

// The programs whose leases hostler moves.
const (
	dhclient = "dhclient"
	dhcpcd   = "dhcpcd"
)

func (k *Keeper) clientFile(link string) string {
	return k.Paths.Host("/run/dhclient." + link + ".pid")
}

// client returns a link's DHCP client, or nil.
func (k *Keeper) client(link string) (*client, error) {
	for _, c := range []client{
		{program: dhclient, file: k.clientFile(link)},
		{program: dhcpcd, file: k.Paths.Host("/run/dhcpcd/" + link + ".pid")},
		{program: dhcpcd, file: k.Paths.Host("/run/dhcpcd/" + link + "-4.pid"), four: true},
	} {
		pid, err := processIn(c.file, c.program)
		if err != nil {
			return nil, fmt.Errorf("cannot look for the DHCP client of %s: %w", link, err)
		}
		if c.pid = pid; pid != 0 {
			return &c, nil
		}
	}
	return k.paused(link)
}

// processIn returns the id of the process that a file names. It returns 0 if
// there is no such process or the process executes another program.
func processIn(file, program string) (int, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return 0, nil // a partly written file names no process
	}
	// Another process may have this id by now.
	executed, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	if err != nil || !strings.HasPrefix(filepath.Base(executed), program) {
		return 0, nil
	}
	return pid, nil
}

// NIC is a NIC that is to join a bridge.
type NIC struct {
	Name   string
	Index  int  // the kernel's number
	Leased bool // an IPv4 address of the NIC is from DHCP
	Later  bool // the bridge has the hardware address of another NIC
	Before bool // hostler has put the NIC under a bridge before, perhaps under another one
}

// Obstacle returns the reason why a NIC's lease cannot move to a bridge, or "". The
// reason is a DHCP client that would lease again for the NIC, or that would not renew
// the lease for the bridge. The latter is no reason for a NIC that was under a bridge
// of hostler before, because machines depend on the bridge.
func (k *Keeper) Obstacle(n NIC) string {
	nic, leased := n.Name, n.Leased
	m, _ := ruler(k.Paths.Root, nic, n.Index)
	const mend = "configure the NIC in /etc/network/interfaces with dhcpcd-base or isc-dhcp-client, or with systemd-networkd"
	if m == networkManager {
		if why := k.unmovable(n); why != "" {
			return why + "; " + mend
		}
	}
	if m != ifupdown && m != none || k.record(nic) != nil {
		return ""
	}
	c, err := k.client(nic)
	if err != nil {
		return err.Error()
	}
	all, _ := processIn(k.Paths.Host("/run/dhcpcd/pid"), dhcpcd)
	six, _ := processIn(k.Paths.Host("/run/dhclient6."+nic+".pid"), dhclient)
	udhcpc, _ := processIn(k.Paths.Host("/run/udhcpc."+nic+".pid"), "busybox")
	switch {
	case m == none && c != nil && (c.program == dhcpcd || !n.Before):
		return fmt.Sprintf("%s renews the lease of %s, which /etc/network/interfaces does not name, and would put the address back; %s", c.program, nic, mend)
	case c != nil && c.program == dhcpcd && n.Later:
		return fmt.Sprintf("dhcpcd renews the lease of %[1]s, and only the lease of the network's first interface can move to the bridge; run `ifdown %[1]s`, and write `iface %[1]s inet manual` in /etc/network/interfaces", nic)
	case six != 0 && !n.Before:
		return fmt.Sprintf("dhclient renews the IPv6 lease of %s and would not renew it for the bridge; write `inet6 auto` or `inet6 static` for it in /etc/network/interfaces, or configure the NIC with systemd-networkd", nic)
	case c != nil:
		return ""
	case all != 0 && leased:
		return fmt.Sprintf("dhcpcd configures all interfaces of this host and would put the address of %s back; run `systemctl disable --now dhcpcd`, and %s", nic, mend)
	case udhcpc != 0:
		return fmt.Sprintf("udhcpc renews the lease of %s and would put the address back; %s", nic, mend)
	case leased && (m == ifupdown || !n.Before && hasClient(k.Paths.Host("/proc/net/udp"))):
		return fmt.Sprintf("a DHCP client that hostler does not know renews the lease of %s and may put the address back; %s", nic, mend)
	}
	return ""
}

// hasClient reports whether a program receives the answers of DHCP servers. udp is
// the kernel's table of UDP sockets, with addresses and ports in hexadecimal
// (proc_net_udp(5)); the port of clients is 68 (RFC 2131, 4.1).
func hasClient(udp string) bool {
	text, _ := os.ReadFile(udp)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasSuffix(f[1], ":0044") {
			return true
		}
	}
	return false
}

// end ends a client without a release of its lease and without a change of the
// link's addresses.
func (k *Keeper) end(ctx context.Context, link string, c *client) error {
	var err error
	switch {
	case c.pid == 0:
	case c.program == dhclient:
		// SIGTERM ends dhclient without a release of the lease (dhclient(8)).
		err = unix.Kill(c.pid, unix.SIGTERM)
	default:
		// Use SIGKILL, because at SIGTERM dhcpcd may remove the address
		// (dhcpcd.conf(5), persistent). dhcpcd's other processes run as another
		// user and end with the first process.
		_, err = k.Dhcpcd.Run(ctx, run.Command{Path: paths.Sh, Job: "end-" + link, Timeout: reloadLimit, Args: []string{
			"-c", `kill -KILL "$1" 2>/dev/null || ! test -e "/proc/$1"`, "sh", strconv.Itoa(c.pid),
		}})
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot end the DHCP client of %s: %w", link, err)
	}
	if c.file == "" {
		return nil
	}
	if err := os.Remove(c.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot end the DHCP client of %s: %w", link, err)
	}
	return nil
}

// moveClient moves a link's DHCP client to another link with the same hardware
// address. If the first link has no client, moveClient does nothing.
func (k *Keeper) moveClient(ctx context.Context, from, to string) error {
	if from == "" || to == "" {
		return nil
	}
	old, err := k.client(from)
	if err != nil || old == nil {
		return err
	}
	there, err := k.client(to)
	if err != nil {
		return err
	}
	if old.program == dhcpcd {
		// A running dhcpcd would lease again for its link. The mark keeps the
		// client for the next attempt if this one does not complete.
		if err := k.Pause(ctx, from); err != nil {
			return err
		}
	}
	if there == nil || there.pid == 0 {
		if err := k.launch(ctx, old, from, to); err != nil {
			return err
		}
	}
	if old.program == dhclient {
		return k.end(ctx, from, old)
	}
	for _, link := range []string{from, to} {
		if err := atomicfile.Remove(k.mark(link)); err != nil {
			return err
		}
	}
	return nil
}

// launch starts a client of old's program with old's options. The client runs
// on the link that to names, with the present lease of the link that from
// names.
func (k *Keeper) launch(ctx context.Context, old *client, from, to string) error {
	runner, command := k.Dhclient, run.Command{Job: to, Timeout: reloadLimit}
	if old.program == dhclient {
		leases := func(link string) string { return k.Paths.Host("/var/lib/dhcp/dhclient." + link + ".leases") }
		if err := copyLease(leases(from), leases(to), 0o644, from, to); err != nil {
			return err
		}
		command.Path, command.Args = paths.Dhclient, []string{"-4", "-nw", "-pf", k.clientFile(to), "-lf", leases(to), to}
	} else {
		for _, suffix := range []string{".lease", ".lease6"} {
			leases := func(link string) string { return k.Paths.Host("/var/lib/dhcpcd/" + link + suffix) }
			if err := copyLease(leases(from), leases(to), 0o640, "", ""); err != nil {
				return err
			}
		}
		runner, command.Path, command.Args = k.Dhcpcd, paths.Dhcpcd, []string{"-b", to}
		if old.four {
			command.Args = []string{"-b", "-4", to}
		}
	}
	if _, err := runner.Run(ctx, command); err != nil {
		return fault.New(fault.Transient, "cannot move the DHCP client of %s: %w", from, err)
	}
	return nil
}

func (c *client) family() string {
	if c.four {
		return "-4"
	}
	return ""
}

// copyLease copies a file of leases, so that the new client asks for the
// present lease. dhclient's file names the link (dhclient.leases(5)), so the
// copy gets the new name (is) in place of the old name (was). If the file is
// missing, the client asks for any lease.
func copyLease(file, to string, mode fs.FileMode, was, is string) error {
	if file == to {
		return nil
	}
	text, err := os.ReadFile(file)
	if err == nil {
		if was != "" {
			line := func(link string) string { return fmt.Sprintf("interface %q;", link) }
			text = []byte(strings.ReplaceAll(string(text), line(was), line(is)))
		}
		err = atomicfile.Write(to, text, mode)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot move the DHCP lease in %s: %w", file, err)
	}
	return nil
}
