// Package persist writes files that recreate a bridge over a host NIC at the
// next boot, in the format of the NIC's manager: systemd-networkd (directly or
// under netplan), NetworkManager or ifupdown. The files are hostler's own; the administrator's
// files are read but never changed. Removing our files therefore undoes
// everything.
package persist

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hostler/internal/atomicfile"
	"hostler/internal/failpoint"
)

// manager is the program that configures a NIC at boot.
type manager string

// The managers that hostler recognises.
const (
	networkd       manager = "systemd-networkd"
	netplan        manager = "netplan" // through systemd-networkd
	ifupdown       manager = "ifupdown"
	networkManager manager = "NetworkManager"
	// none means that the agent recreates the bridge when it starts.
	none manager = ""
)

// Bridge is a bridge over one host NIC.
type Bridge struct {
	Name, NIC string
	Namespace string
	// Index is the kernel's number of the NIC.
	Index int
	// Stamp is the bridge's alias, which identifies it to the agent after a
	// boot.
	Stamp string
	MAC   string
	MTU   int // bytes
	// Addresses are the declared addresses. The NIC's own addresses come from the
	// NIC's manager.
	Addresses []netip.Prefix
	// paused is NetworkManager's record of the NIC if Pause took the NIC from it.
	paused map[string]string
}

// ruler returns the manager of the NIC, and its configuration file if known.
// root is prefixed to every path; it is empty on a real host.
func ruler(root, nic string, index int) (m manager, file string) {
	state := keyValues(filepath.Join("/", root, "run/systemd/netif/links", fmt.Sprint(index)))
	if file = state["NETWORK_FILE"]; file != "" && state["ADMIN_STATE"] != "unmanaged" && state["ADMIN_STATE"] != "failed" {
		if strings.Contains(filepath.Base(file), "netplan") {
			return netplan, file
		}
		return networkd, file
	}
	if keyValues(filepath.Join("/", root, "run/NetworkManager/devices", fmt.Sprint(index)))["managed"] == "true" {
		return networkManager, ""
	}
	if file = ifupdownFile(root, nic); file != "" {
		return ifupdown, file
	}
	return none, ""
}

// keyValues reads lines of KEY=VALUE; it returns nil for a missing file.
func keyValues(path string) map[string]string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[key] = value
		}
	}
	return values
}

// ifupdownFile returns the file with the NIC's stanza (interfaces(5)), or "".
func ifupdownFile(root, nic string) string {
	dir := filepath.Join("/", root, "etc/network")
	files, _ := filepath.Glob(filepath.Join(dir, "interfaces.d", "*"))
	for _, path := range append([]string{filepath.Join(dir, "interfaces")}, files...) {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) >= 2 && f[0] == "iface" && f[1] == nic {
				return below(root, path)
			}
		}
	}
	return ""
}

// below removes root from a path.
func below(root, path string) string {
	return strings.TrimPrefix(path, strings.TrimSuffix(filepath.Join("/", root), "/"))
}

// filesOf returns the manager of the bridge's NIC and the files that make the
// bridge at boot.
func filesOf(root string, b Bridge) (m manager, files map[string]string, err error) {
	m, file := ruler(root, b.NIC, b.Index)
	if b.paused != nil {
		m = networkManager
	}
	own := ownFile(b)
	if strings.HasSuffix(file, own) {
		// Our own file rules the NIC by now; use the administrator's file.
		if file, err = personsFile(root, b.NIC, own); err != nil {
			return m, nil, err
		}
	}
	switch m {
	case networkd, netplan:
		files, err = networkdFiles(root, file, b)
	case ifupdown:
		files = ifupdownFiles(b)
	case networkManager:
		files, err = networkManagerFiles(root, b)
	case none:
	}
	return m, files, err
}

// holds reports whether the files of the bridge are as writeBridge writes them,
// and returns the NIC's manager. It only reads.
func holds(root string, b Bridge) (m manager, holds bool) {
	m, files, err := filesOf(root, b)
	have := owned(root, b.Namespace, b.Name)
	if err != nil || len(have) != len(files) {
		return m, false
	}
	for _, path := range have {
		content, wanted := files[below(root, path)[1:]]
		if data, err := os.ReadFile(path); !wanted || err != nil || string(data) != content {
			return m, false
		}
	}
	return m, true
}

// writeBridge creates or updates the files of the bridge. It reports whether any
// file changed, and the NIC's manager. It is idempotent. A NIC without a manager
// gets no files.
func writeBridge(root string, b Bridge) (m manager, changed bool, err error) {
	m, files, err := filesOf(root, b)
	if err != nil {
		return m, false, err
	}
	for _, path := range owned(root, b.Namespace, b.Name) {
		if _, keep := files[below(root, path)[1:]]; !keep {
			if err := atomicfile.Remove(path); err != nil {
				return m, changed, err
			}
			changed = true
		}
	}
	// Write the NIC's own file last, because a host that boots in between must
	// not enslave the NIC to a bridge that it cannot create.
	nic, others := apart(slices.Sorted(maps.Keys(files)), b.NIC)
	for _, name := range append(others, nic...) {
		content := files[name]
		path := filepath.Join("/", root, name)
		if have, err := os.ReadFile(path); err == nil && string(have) == content {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return m, changed, fmt.Errorf("cannot make bridge %s persistent: %w", b.Name, err)
		}
		mode := fs.FileMode(0o644)
		switch {
		case strings.HasPrefix(content, "#!"):
			mode = 0o755
		case strings.HasPrefix(name, nmDir):
			mode = 0o600
		}
		if err := atomicfile.Write(path, []byte(content), mode); err != nil {
			return m, changed, err
		}
		changed = true
		if err := failpoint.Hit(failpoint.NetLastingWritten); err != nil {
			return m, changed, err
		}
	}
	return m, changed, nil
}

// disabled is the suffix of disabled files. Neither systemd-networkd nor
// run-parts(8) reads a file with this suffix.
const disabled = ".off"

// disable disables the files of a bridge, and reports whether the bridge has
// any files, disabled or not. bridges() and nic() find the files until
// removeBridge() removes them. disable is idempotent.
func disable(root, namespace, bridge string) (there bool, err error) {
	// Disable the NIC's own file first, for the same reason that writeBridge
	// writes this file last.
	nic, others := apart(owned(root, namespace, bridge), nic(root, namespace, bridge))
	for _, path := range append(nic, others...) {
		there = true
		var err error
		switch {
		case strings.HasSuffix(path, disabled):
		case strings.HasPrefix(below(root, path)[1:], nmDir): // NetworkManager reads files with any suffix
			err = atomicfile.Remove(path)
		default:
			err = os.Rename(path, path+disabled)
		}
		if err != nil {
			return true, fmt.Errorf("cannot disable the files of bridge %s: %w", bridge, err)
		}
	}
	return there, nil
}

// apart separates the own file of the NIC under the bridge from the bridge's files.
func apart(files []string, under string) (nic, others []string) {
	for _, name := range files {
		if strings.HasSuffix(name, ownFile(Bridge{NIC: under})) || strings.HasSuffix(name, profileFile(under)) {
			nic = append(nic, name)
		} else {
			others = append(others, name)
		}
	}
	return nic, others
}

// ruled reports whether systemd-networkd configures the NIC with our file.
func ruled(root string, b Bridge) bool {
	_, file := ruler(root, b.NIC, b.Index)
	return strings.HasSuffix(file, ownFile(b))
}

// removeBridge removes the files of a bridge, and reports whether there were
// any.
func removeBridge(root, namespace, bridge string) (changed bool, err error) {
	for _, path := range owned(root, namespace, bridge) {
		if err := atomicfile.Remove(path); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

// marking begins the line that identifies a file of ours.
const marking = "# hostler: bridge "

// mark returns the mark that one of the first two lines of each of our files
// contains. It names the namespace, because several agents can share a host.
func mark(bridge, namespace string) string { return marking + bridge + " of " + namespace }

func (b Bridge) mark() string { return mark(b.Name, b.Namespace) + " over " + b.NIC + "\n" }

// bridges returns the bridges of a namespace that have files of ours.
func bridges(root, namespace string) []string {
	var names []string
	for _, m := range marks(root) {
		if m.namespace == namespace && !slices.Contains(names, m.bridge) {
			names = append(names, m.bridge)
		}
	}
	slices.Sort(names)
	return names
}

// nic returns the NIC under a bridge that has files of ours, or "".
func nic(root, namespace, bridge string) string {
	for _, m := range marks(root) {
		if m.namespace == namespace && m.bridge == bridge {
			return m.nic
		}
	}
	return ""
}

type marked struct{ bridge, namespace, nic string }

func marks(root string) []marked {
	var all []marked
	for _, path := range candidates(root) {
		if m, ours := markIn(path); ours {
			all = append(all, m)
		}
	}
	return all
}

// markIn returns the mark in a file.
func markIn(path string) (m marked, ours bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return marked{}, false
	}
	_, rest, ok := strings.Cut(string(data), marking)
	line, _, _ := strings.Cut(rest, "\n")
	words := strings.Fields(line)
	if !ok || len(words) != 5 {
		return marked{}, false
	}
	return marked{bridge: words[0], namespace: words[2], nic: words[4]}, true
}

// owned returns the files of a bridge. It checks the mark of each file, so that
// an administrator's file whose name only looks like ours stays.
func owned(root, namespace, bridge string) []string {
	return slices.DeleteFunc(candidates(root), func(path string) bool {
		data, err := os.ReadFile(path)
		return err != nil && !errors.Is(err, fs.ErrNotExist) || !strings.Contains(string(data), mark(bridge, namespace)+" over ")
	})
}

func candidates(root string) []string {
	var all []string
	for _, pattern := range []string{networkdDir + "/05-hostler-*", nmDir + "/05-hostler-*", ifupDir + "/hostler-*"} {
		found, _ := filepath.Glob(filepath.Join("/", root, pattern))
		all = append(all, found...)
	}
	return all
}
