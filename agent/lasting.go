package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler/hostnet/persist"
	"hostler/internal/atomicfile"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// lasting makes bridges over host NICs come back with the host's start, and
// hands a NIC's leased addresses over to whoever renews them on the bridge.
type lasting struct{ *host }

// reloadLimit bounds what the programs that configure the network may take.
const reloadLimit = 30 * time.Second

// Keep implements networkprovisioner.Lasting.
func (l lasting) Keep(ctx context.Context, b persist.Bridge) (string, error) {
	m, changed, err := persist.Write(l.paths.Root, b)
	if err != nil {
		return "", err
	}
	switch m {
	case persist.None:
		return "", nil // the agent makes the bridge anew at each start
	case persist.Ifupdown:
		return "", l.moveClient(ctx, b.NIC, b.Name)
	case persist.Networkd, persist.Netplan:
		// An agent that died before it told networkd has left the telling.
		if changed || !persist.Ruled(l.paths.Root, b) && l.untold(b.Name) {
			return "", l.reload(ctx)
		}
	}
	return "", nil
}

// Drop implements networkprovisioner.Lasting.
func (l lasting) Drop(ctx context.Context, bridge string) error {
	nic := persist.NIC(l.paths.Root, l.config().Namespace, bridge)
	there, err := persist.Disable(l.paths.Root, l.config().Namespace, bridge)
	if err != nil || !there {
		return err
	}
	// The files go last: as long as they are there, what is left is done again.
	if err := errors.Join(l.reload(ctx), l.moveClient(ctx, bridge, nic)); err != nil {
		return err
	}
	_, err = persist.Remove(l.paths.Root, l.config().Namespace, bridge)
	return err
}

// untold says, once for each bridge, that this process has told nobody of it.
func (l lasting) untold(bridge string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil {
		l.told = map[string]bool{}
	}
	first := !l.told[bridge]
	l.told[bridge] = true
	return first
}

// Bridges implements networkprovisioner.Lasting.
func (l lasting) Bridges() []string { return persist.Bridges(l.paths.Root, l.config().Namespace) }

// reload tells systemd-networkd of the files; where it does not run there is
// nothing to tell.
func (l lasting) reload(ctx context.Context) error {
	if _, err := os.Stat(l.paths.Host("/run/systemd/netif/state")); err != nil {
		return nil
	}
	_, err := run.Host{}.Run(ctx, run.Command{Path: paths.Networkctl, Args: []string{"reload"}, Timeout: reloadLimit})
	return err
}

// moveClient has the lease of one link's dhclient renewed on another, which has
// the same hardware address: one is started there with the lease before the
// old one ends, so that at any time somebody renews it. Without a dhclient on
// the link it does nothing.
func (l lasting) moveClient(ctx context.Context, from, to string) error {
	if from == "" || to == "" {
		return nil
	}
	old, err := l.client(from)
	if err != nil || old == 0 {
		return err
	}
	there, err := l.client(to)
	if err != nil {
		return err
	}
	leases := func(link string) string { return l.paths.Host("/var/lib/dhcp/dhclient." + link + ".leases") }
	if there == 0 {
		if err := moveLeases(leases(from), leases(to), from, to); err != nil {
			return err
		}
		_, err := run.Host{}.Run(ctx, run.Command{Path: paths.Dhclient, Timeout: reloadLimit, Args: []string{
			"-4", "-nw", "-pf", l.clientFile(to), "-lf", leases(to), to,
		}})
		if err != nil {
			return fmt.Errorf("cannot move the DHCP client of %s: %w", from, err)
		}
	}
	// SIGTERM ends it without giving the lease back (dhclient(8)).
	if err := unix.Kill(old, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot move the DHCP client of %s: %w", from, err)
	}
	if err := os.Remove(l.clientFile(from)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot move the DHCP client of %s: %w", from, err)
	}
	return nil
}

func (l lasting) clientFile(link string) string {
	return l.paths.Host("/run/dhclient." + link + ".pid")
}

// client is the process of a link's dhclient, 0 without one.
func (l lasting) client(link string) (int, error) {
	text, err := os.ReadFile(l.clientFile(link))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("cannot look for the DHCP client of %s: %w", link, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return 0, nil // a torn file tells of nobody
	}
	// The number may be another process's by now.
	program, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	if err != nil || !strings.HasPrefix(filepath.Base(program), "dhclient") {
		return 0, nil
	}
	return pid, nil
}

// moveLeases lets the client on the new link ask for the lease that it has,
// rather than for any (dhclient.leases(5)). Without a file it asks for any.
func moveLeases(file, moved, from, to string) error {
	text, err := os.ReadFile(file)
	if err == nil {
		line := func(link string) string { return fmt.Sprintf("interface %q;", link) }
		err = atomicfile.Write(moved, []byte(strings.ReplaceAll(string(text), line(from), line(to))), 0o644)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot move the DHCP lease of %s: %w", from, err)
	}
	return nil
}
