package persist

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"hostler/internal/paths"
	"hostler/internal/run"
)

// Keeper makes bridges over host NICs come back after a boot and moves the
// renewal of a NIC's DHCP leases to the bridge.
type Keeper struct {
	Paths     paths.Paths
	Namespace string
	// Dhclient and Dhcpcd run the clients of these names as daemons that outlive
	// this process.
	Dhclient, Dhcpcd run.Runner

	mu sync.Mutex
	// reloaded holds the bridges for which firstReload has returned true.
	reloaded map[string]bool
	// unrestored holds the bridges for which Restore has failed.
	unrestored map[string]bool
}

// reloadLimit bounds the run time of the programs that configure the network.
const reloadLimit = 30 * time.Second

// Persist writes the files of a bridge and puts them in force. It is idempotent.
func (k *Keeper) Persist(ctx context.Context, b Bridge) error {
	b.paused = k.record(b.NIC)
	m, changed, err := writeBridge(k.Paths.Root, b)
	if err != nil {
		return err
	}
	switch m {
	case networkManager:
		return k.activate(ctx, marked{bridge: b.Name, namespace: b.Namespace, nic: b.NIC}, changed)
	case none: // the agent creates the bridge at each start
	case ifupdown:
		return k.moveClient(ctx, b.NIC, b.Name)
	case networkd, netplan:
		// An earlier agent may have died between the write and the reload.
		if changed || !ruled(k.Paths.Root, b) && k.firstReload(b.Name) {
			return k.reload(ctx)
		}
	}
	return nil
}

// Holds reports whether Persist would change nothing.
func (k *Keeper) Holds(b Bridge) bool {
	b.paused = k.record(b.NIC)
	m, holds := holds(k.Paths.Root, b)
	switch {
	case holds && m == networkManager:
		return k.activates(b.Namespace, b.Name) && k.activates(b.Namespace, b.NIC)
	case !holds || m != ifupdown:
		return holds
	}
	client, err := k.client(b.NIC)
	return err == nil && client == nil // there is no client to move
}

// Drop undoes Persist; it succeeds for a bridge that is not persistent.
func (k *Keeper) Drop(ctx context.Context, bridge string) error {
	nic := nic(k.Paths.Root, k.Namespace, bridge)
	there, err := disable(k.Paths.Root, k.Namespace, bridge)
	if err != nil || !there {
		return err
	}
	// Remove the files last. While they exist, a later call repeats unfinished
	// steps.
	if err := errors.Join(k.reload(ctx), k.forget(ctx, nic), k.moveClient(ctx, bridge, nic)); err != nil {
		return err
	}
	_, err = removeBridge(k.Paths.Root, k.Namespace, bridge)
	return err
}

// firstReload reports whether this is the first call for the bridge in this
// process.
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
	return bridges(k.Paths.Root, k.Namespace)
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
