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
		if changed {
			return "", l.reload(ctx)
		}
	}
	return "", nil
}

// Drop implements networkprovisioner.Lasting.
func (l lasting) Drop(ctx context.Context, bridge string) error {
	nic := persist.NIC(l.paths.Root, l.config().Namespace, bridge)
	changed, err := persist.Remove(l.paths.Root, l.config().Namespace, bridge)
	if err != nil || !changed {
		return err
	}
	return errors.Join(l.reload(ctx), l.moveClient(ctx, bridge, nic))
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

// moveClient ends the dhclient of one link and starts it on another, which has
// the same hardware address and so is given the same lease. Without a dhclient
// on the link it does nothing.
func (l lasting) moveClient(ctx context.Context, from, to string) error {
	if from == "" || to == "" {
		return nil
	}
	file := l.paths.Host("/run/dhclient." + from + ".pid")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err := errors.Join(err, bad); err != nil {
		return fmt.Errorf("cannot move the DHCP client of %s: %w", from, err)
	}
	// The number may be another process's by now.
	program, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	if err != nil || !strings.HasPrefix(filepath.Base(program), "dhclient") {
		return nil
	}
	// SIGTERM ends it without giving the lease back (dhclient(8)).
	if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot move the DHCP client of %s: %w", from, err)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot move the DHCP client of %s: %w", from, err)
	}
	_, err = run.Host{}.Run(ctx, run.Command{Path: paths.Dhclient, Timeout: reloadLimit, Args: []string{
		"-4", "-nw", "-pf", l.paths.Host("/run/dhclient." + to + ".pid"), "-lf", l.paths.Host("/var/lib/dhcp/dhclient." + to + ".leases"), to,
	}})
	return err
}
