package persist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// unmovable returns the reason why NetworkManager cannot configure a bridge as it
// configures a NIC, or "".
func (k *Keeper) unmovable(n NIC) string {
	id := keyValues(k.Paths.Host(filepath.Join(nmDevices, strconv.Itoa(n.Index))))["connection-uuid"]
	switch _, err := profile(k.Paths.Root, id); {
	case n.Later && err == nil && !n.Before:
		return fmt.Sprintf("NetworkManager configures %s, and only the configuration of the network's first interface can move to the bridge; disconnect the NIC for good, e.g. with `nmcli connection modify %s connection.autoconnect no` and `nmcli device disconnect %[1]s`", n.Name, id)
	case n.Leased && err != nil && !n.Before:
		return fmt.Sprintf("NetworkManager renews the lease of %s and would not renew it for the bridge, because %v", n.Name, err)
	}
	return ""
}

// inForce returns the bridge under which NetworkManager puts a NIC by our profiles.
func inForce(root, nic string) (marked, bool) {
	m, ours := markIn(filepath.Join("/", root, nmDir, profileFile(nic)))
	return m, ours && m.nic == nic
}

// Restored returns, by bridge, the NICs that NetworkManager itself puts under the bridge.
func (k *Keeper) Restored() map[string]string {
	all := map[string]string{}
	if _, err := os.Stat(k.Paths.Host(nmDevices)); err != nil {
		return all // NetworkManager has not run since the boot
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range marks(k.Paths.Root) {
		is, ours := inForce(k.Paths.Root, m.nic)
		if ours && is == m && m.namespace == k.Namespace && k.record(m.nic) == nil && !k.unrestored[m.bridge] && !k.elsewhere(m.nic) {
			all[m.bridge] = m.nic
		}
	}
	return all
}

// elsewhere reports whether another manager configures the NIC by now.
func (k *Keeper) elsewhere(nic string) bool {
	r, _ := ruler(k.Paths.Root, nic, index(k.Paths.Root, nic))
	return r == networkd || r == netplan
}

// Restore makes NetworkManager put the NIC of one of the Restored bridges under the
// bridge now. After a failure the bridge is none of them until the next success of
// Persist, so that the agent makes it.
func (k *Keeper) Restore(ctx context.Context, bridge string) error {
	m, ours := inForce(k.Paths.Root, k.Restored()[bridge])
	if !ours {
		return nil
	}
	err := k.activate(ctx, m, false)
	if err != nil && ctx.Err() == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.unrestored == nil {
			k.unrestored = map[string]bool{}
		}
		k.unrestored[bridge] = true
	}
	return err
}

// master returns the bridge that a link is a port of, or "".
func (k *Keeper) master(link string) string {
	to, _ := os.Readlink(k.Paths.Host("/sys/class/net/" + link + "/master"))
	return strings.TrimPrefix(filepath.Base(to), ".")
}

// record returns NetworkManager's record of a NIC that Pause took from it, or nil.
func (k *Keeper) record(nic string) map[string]string {
	if was := keyValues(k.mark(nic)); was["origin"] != "" {
		return was
	}
	return nil
}

// takeOver makes NetworkManager let go of a NIC and of our bridge over it, whose
// addresses, routes and ports stay. Otherwise NetworkManager puts addresses back
// that another process deletes (1.52), and makes the bridge again. The mark keeps the
// record that NetworkManager then forgets.
func (k *Keeper) takeOver(ctx context.Context, nic string) error {
	active, err := k.active(ctx)
	if err != nil {
		if device(k.Paths.Root, nic)["managed"] == "true" {
			return err
		}
		return nil // NetworkManager does not configure the NIC
	}
	own, err := profile(k.Paths.Root, active[nic])
	if err != nil {
		return nil //nolint:nilerr // NetworkManager does not configure the NIC, or Persist reports the reason
	}
	m, _ := inForce(k.Paths.Root, nic)
	if k.record(nic) == nil {
		text := "origin=" + cmp.Or(get(own, "user", "hostler.origin"), active[nic]) + "\n"
		var record strings.Builder
		for key, value := range device(k.Paths.Root, cmp.Or(m.bridge, nic)) {
			fmt.Fprintf(&record, "%s=%s\n", key, value)
		}
		if err := k.writeMark(nic, text+record.String()); err != nil {
			return err
		}
	}
	for _, link := range []string{nic, m.bridge} {
		if active[link] == "" {
			continue
		}
		if _, err := nmcli(ctx, "device", "set", link, "managed", "no"); err != nil {
			return err
		}
	}
	return nil
}

// notRunning is nmcli's exit code if NetworkManager does not run (nmcli(1)).
const notRunning = 8

// active returns the uuids of NetworkManager's active profiles, by link. It returns
// nil if NetworkManager does not run. NetworkManager's records on the disk lag behind.
func (k *Keeper) active(ctx context.Context) (map[string]string, error) {
	if _, err := os.Stat(k.Paths.Host(nmDevices)); err != nil {
		return nil, nil
	}
	out, err := nmcli(ctx, "-g", "DEVICE,CON-UUID", "device", "status")
	if code, _ := run.ExitCode(err); code == notRunning || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for line := range strings.Lines(out) {
		link, id, _ := strings.Cut(strings.TrimSpace(line), ":")
		ids[link] = id
	}
	return ids, nil
}

// activates reports whether NetworkManager has activated our profile of a link.
func (k *Keeper) activates(namespace, link string) bool {
	return device(k.Paths.Root, link)["connection-uuid"] == profileID(namespace, link)
}

// activate makes NetworkManager configure the bridge and its NIC by our profiles. If
// it does so already, activate makes it apply changed profiles, which interrupts
// nothing. Otherwise the bridge loses its addresses for some 0.5 s, and its guests'
// ports, which the agent puts back. It does not end with ctx, because the bridge has
// no NIC between the two activations.
func (k *Keeper) activate(ctx context.Context, m marked, changed bool) error {
	ctx = context.WithoutCancel(ctx)
	file := func(link string) string { return k.Paths.Host(nmDir + profileFile(link)) }
	if _, err := nmcli(ctx, "connection", "load", file(m.bridge), file(m.nic)); err != nil {
		return err
	}
	active, failed := k.active(ctx)
	for _, link := range []string{m.bridge, m.nic} {
		var err error
		switch id := profileID(m.namespace, link); {
		case active[link] != id:
			_, err = nmcli(ctx, "--wait", "20", "connection", "up", "uuid", id)
		case changed && link == m.bridge:
			_, err = nmcli(ctx, "device", "reapply", link)
		}
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		return failed
	}
	k.mu.Lock()
	delete(k.unrestored, m.bridge)
	k.mu.Unlock()
	return atomicfile.Remove(k.mark(m.nic))
}

// release gives a NIC that is no port any more back to NetworkManager, with the
// profile that the NIC had. It does nothing if Pause did not take the NIC.
func (k *Keeper) release(ctx context.Context, nic string) error {
	was := k.record(nic)
	if _, err := os.Stat(k.Paths.Host("/sys/class/net/" + nic + "/master")); was == nil || err == nil {
		return nil
	}
	if _, err := profile(k.Paths.Root, was["origin"]); err != nil {
		// NetworkManager makes a profile for a NIC without one only when it starts. Make
		// the same one, until the next boot. After a crash it may be there already.
		_, _ = nmcli(ctx, "connection", "add", "save", "no", "type", "ethernet", "ifname", nic, "con-name", nic, "connection.uuid", was["origin"], "connection.autoconnect-priority", "-999")
	}
	if _, err := nmcli(ctx, "--wait", "0", "connection", "up", "uuid", was["origin"], "ifname", nic); err != nil && device(k.Paths.Root, nic) != nil {
		// E.g. without a carrier. NetworkManager activates a profile as soon as it can.
		if _, err := nmcli(ctx, "device", "set", nic, "managed", "yes"); err != nil {
			return err
		}
	}
	return atomicfile.Remove(k.mark(nic))
}

// forget makes NetworkManager notice that profiles of ours are gone, and releases
// their NIC.
func (k *Keeper) forget(ctx context.Context, nic string) error {
	if active, err := k.active(ctx); err != nil || active == nil {
		return err
	}
	if _, err := nmcli(ctx, "connection", "reload"); err != nil {
		return err
	}
	return k.release(ctx, nic)
}

func nmcli(ctx context.Context, args ...string) (string, error) {
	result, err := run.Host{}.Run(ctx, run.Command{Path: paths.Nmcli, Args: args, Timeout: reloadLimit})
	if err != nil {
		return "", fault.New(fault.Transient, "cannot make NetworkManager do its part: %w", err)
	}
	return string(result.Stdout), nil
}
