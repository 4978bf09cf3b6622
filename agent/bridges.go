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
	"hostler/internal/units"
)

// bridgePersister makes bridges over host NICs come back after a boot and moves
// the renewal of a NIC's DHCP leases to the bridge.
type bridgePersister struct{ *host }

// reloadLimit bounds the run time of the programs that configure the network.
const reloadLimit = 30 * time.Second

// Persist implements networkprovisioner.BootPersister.
func (l bridgePersister) Persist(ctx context.Context, b persist.Bridge) error {
	m, changed, err := persist.Write(l.paths.Root, b)
	if err != nil {
		return err
	}
	switch m {
	case persist.None: // the agent creates the bridge at each start
	case persist.Ifupdown:
		return l.moveClient(ctx, b.NIC, b.Name)
	case persist.Networkd, persist.Netplan:
		// An earlier agent may have died between the write and the reload.
		if changed || !persist.Ruled(l.paths.Root, b) && l.firstReload(b.Name) {
			return l.reload(ctx)
		}
	}
	return nil
}

// Holds implements networkprovisioner.BootPersister.
func (l bridgePersister) Holds(b persist.Bridge) bool {
	m, holds := persist.Holds(l.paths.Root, b)
	if !holds || m != persist.Ifupdown {
		return holds
	}
	client, err := l.client(b.NIC)
	return err == nil && client == 0 // none is to be moved
}

// Drop implements networkprovisioner.BootPersister.
func (l bridgePersister) Drop(ctx context.Context, bridge string) error {
	nic := persist.NIC(l.paths.Root, l.config().Namespace, bridge)
	there, err := persist.Disable(l.paths.Root, l.config().Namespace, bridge)
	if err != nil || !there {
		return err
	}
	// The files go last: while they exist, a later call repeats unfinished steps.
	if err := errors.Join(l.reload(ctx), l.moveClient(ctx, bridge, nic)); err != nil {
		return err
	}
	_, err = persist.Remove(l.paths.Root, l.config().Namespace, bridge)
	return err
}

// firstReload returns true for a bridge at the first call in this process.
func (l bridgePersister) firstReload(bridge string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reloaded == nil {
		l.reloaded = map[string]bool{}
	}
	first := !l.reloaded[bridge]
	l.reloaded[bridge] = true
	return first
}

// Bridges implements networkprovisioner.BootPersister.
func (l bridgePersister) Bridges() []string {
	return persist.Bridges(l.paths.Root, l.config().Namespace)
}

// reload makes systemd-networkd read its files again. It does nothing if
// systemd-networkd does not run.
func (l bridgePersister) reload(ctx context.Context) error {
	if _, err := os.Stat(l.paths.Host("/run/systemd/netif/state")); err != nil {
		return nil
	}
	_, err := run.Host{}.Run(ctx, run.Command{Path: paths.Networkctl, Args: []string{"reload"}, Timeout: reloadLimit})
	return err
}

// moveClient moves the renewal of a lease from one link's dhclient to another
// link with the same hardware address. It starts the new client with the old
// lease before it ends the old client, so that a client runs at any time.
// Without a dhclient on the link it does nothing.
func (l bridgePersister) moveClient(ctx context.Context, from, to string) error {
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
		_, err := l.runner(units.DHClient).Run(ctx, run.Command{Path: paths.Dhclient, Job: to, Timeout: reloadLimit, Args: []string{
			"-4", "-nw", "-pf", l.clientFile(to), "-lf", leases(to), to,
		}})
		if err != nil {
			return fmt.Errorf("cannot move the DHCP client of %s: %w", from, err)
		}
	}
	// SIGTERM ends dhclient without a release of the lease (dhclient(8)).
	if err := unix.Kill(old, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot move the DHCP client of %s: %w", from, err)
	}
	if err := os.Remove(l.clientFile(from)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot move the DHCP client of %s: %w", from, err)
	}
	return nil
}

func (l bridgePersister) clientFile(link string) string {
	return l.paths.Host("/run/dhclient." + link + ".pid")
}

// client returns the process id of a link's dhclient, or 0.
func (l bridgePersister) client(link string) (int, error) {
	text, err := os.ReadFile(l.clientFile(link))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("cannot look for the DHCP client of %s: %w", link, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return 0, nil // a partly written file names no process
	}
	// Another process may have this id by now.
	program, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	if err != nil || !strings.HasPrefix(filepath.Base(program), "dhclient") {
		return 0, nil
	}
	return pid, nil
}

// moveLeases copies the lease file, so that the new client asks for the present
// lease (dhclient.leases(5)). Without a file the client asks for any lease.
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
