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
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/atomicfile"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// Keeper makes bridges over host NICs come back after a boot and moves the
// renewal of a NIC's DHCP leases to the bridge.
type Keeper struct {
	Paths     paths.Paths
	Namespace string
	// Clients runs dhclient as a daemon that outlives this process.
	Clients run.Runner

	mu sync.Mutex
	// reloaded holds the bridges for which firstReload has returned true.
	reloaded map[string]bool
}

// reloadLimit bounds the run time of the programs that configure the network.
const reloadLimit = 30 * time.Second

// Persist writes the files of a bridge and puts them in force. It is idempotent.
func (k *Keeper) Persist(ctx context.Context, b Bridge) error {
	m, changed, err := Write(k.Paths.Root, b)
	if err != nil {
		return err
	}
	switch m {
	case None: // the agent creates the bridge at each start
	case Ifupdown:
		return k.moveClient(ctx, b.NIC, b.Name)
	case Networkd, Netplan:
		// An earlier agent may have died between the write and the reload.
		if changed || !Ruled(k.Paths.Root, b) && k.firstReload(b.Name) {
			return k.reload(ctx)
		}
	}
	return nil
}

// Holds reports whether Persist would change nothing.
func (k *Keeper) Holds(b Bridge) bool {
	m, holds := Holds(k.Paths.Root, b)
	if !holds || m != Ifupdown {
		return holds
	}
	client, err := k.client(b.NIC)
	return err == nil && client == 0 // none is to be moved
}

// Drop undoes Persist; it succeeds for a bridge that is not persistent.
func (k *Keeper) Drop(ctx context.Context, bridge string) error {
	nic := NIC(k.Paths.Root, k.Namespace, bridge)
	there, err := Disable(k.Paths.Root, k.Namespace, bridge)
	if err != nil || !there {
		return err
	}
	// The files go last: while they exist, a later call repeats unfinished steps.
	if err := errors.Join(k.reload(ctx), k.moveClient(ctx, bridge, nic)); err != nil {
		return err
	}
	_, err = Remove(k.Paths.Root, k.Namespace, bridge)
	return err
}

// firstReload returns true for a bridge at the first call in this process.
func (k *Keeper) firstReload(bridge string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reloaded == nil {
		k.reloaded = map[string]bool{}
	}
	first := !k.reloaded[bridge]
	k.reloaded[bridge] = true
	return first
}

// Bridges returns the bridges of the namespace that have files of ours.
func (k *Keeper) Bridges() []string {
	return Bridges(k.Paths.Root, k.Namespace)
}

// reload makes systemd-networkd read its files again. It does nothing if
// systemd-networkd does not run.
func (k *Keeper) reload(ctx context.Context) error {
	if _, err := os.Stat(k.Paths.Host("/run/systemd/netif/state")); err != nil {
		return nil
	}
	_, err := run.Host{}.Run(ctx, run.Command{Path: paths.Networkctl, Args: []string{"reload"}, Timeout: reloadLimit})
	return err
}

// moveClient moves the renewal of a lease from one link's dhclient to another
// link with the same hardware address. It starts the new client with the old
// lease before it ends the old client, so that a client runs at any time.
// Without a dhclient on the link it does nothing.
func (k *Keeper) moveClient(ctx context.Context, from, to string) error {
	if from == "" || to == "" {
		return nil
	}
	old, err := k.client(from)
	if err != nil || old == 0 {
		return err
	}
	there, err := k.client(to)
	if err != nil {
		return err
	}
	leases := func(link string) string { return k.Paths.Host("/var/lib/dhcp/dhclient." + link + ".leases") }
	if there == 0 {
		if err := moveLeases(leases(from), leases(to), from, to); err != nil {
			return err
		}
		_, err := k.Clients.Run(ctx, run.Command{Path: paths.Dhclient, Job: to, Timeout: reloadLimit, Args: []string{
			"-4", "-nw", "-pf", k.clientFile(to), "-lf", leases(to), to,
		}})
		if err != nil {
			return fmt.Errorf("cannot move the DHCP client of %s: %w", from, err)
		}
	}
	// SIGTERM ends dhclient without a release of the lease (dhclient(8)).
	if err := unix.Kill(old, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot move the DHCP client of %s: %w", from, err)
	}
	if err := os.Remove(k.clientFile(from)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot move the DHCP client of %s: %w", from, err)
	}
	return nil
}

func (k *Keeper) clientFile(link string) string {
	return k.Paths.Host("/run/dhclient." + link + ".pid")
}

// client returns the process id of a link's dhclient, or 0.
func (k *Keeper) client(link string) (int, error) {
	text, err := os.ReadFile(k.clientFile(link))
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
