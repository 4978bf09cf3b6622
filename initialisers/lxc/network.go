package lxc

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hostler/initialisers"
	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// networkFile configures the bridge that the package lxc makes, with its DHCP
// server. networkMark is its first line if hostler wrote it.
const (
	networkFile = "/etc/default/lxc-net"
	networkMark = "# Written by hostler for its LXC machines; without this line, hostler leaves the file alone."
)

// networkUnit makes the bridge. networkDropIn has it do so also where the host
// is itself a container.
const (
	networkUnit   = "lxc-net.service"
	networkDropIn = "/etc/systemd/system/lxc-net.service.d/hostler.conf"
)

// defaultSubnet is where the search for a subnet of the bridge starts.
var defaultSubnet = netip.MustParseAddr("10.0.3.0")

func (i *Initialiser) hasBridge() bool {
	_, err := os.Stat(i.opts.Paths.Host("/sys/class/net/" + Bridge))
	return err == nil
}

// writeNetwork configures the bridge before the package makes it: in a subnet
// that the host does not use, with leases that never end. With NoBridge it has
// the package make none. It changes nothing if the bridge exists or an
// administrator configured it. hostler's own configuration keeps its subnet as
// long as the host does not use it otherwise.
func (i *Initialiser) writeNetwork() error {
	path := i.opts.Paths.Host(networkFile)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot configure LXC's bridge: %w", err)
	}
	text := string(data)
	ours := strings.HasPrefix(text, networkMark)
	if i.hasBridge() || !ours && !pristine(text) {
		return nil
	}
	if i.opts.NoBridge {
		if i.hasInstances() { // which may be on the bridge
			return nil
		}
		return i.writeNetworkFile(networkMark + "\nUSE_LXC_BRIDGE=\"false\"\n")
	}
	host, err := initialisers.ReadHostNetwork(i.opts.Paths)
	if err != nil {
		return fmt.Errorf("cannot configure LXC's bridge: %w", err)
	}
	if kept := subnetOf(text); ours && kept.IsValid() {
		if initialisers.Unused(host.Used, kept) {
			return nil
		}
		if i.hasInstances() {
			return fault.New(fault.NeedsOperator, "cannot configure LXC's bridge: its subnet (LXC_NETWORK in %s) overlaps an address or a route of this host, and instances may have addresses there: remove the overlap, or choose another subnet in that file", networkFile)
		}
	}
	subnet, found := initialisers.UnusedSubnet(host.Used, defaultSubnet)
	if !found {
		return fault.New(fault.NeedsOperator, "cannot find a free IPv4 subnet for LXC's bridge: every private /24 overlaps an address or a route of this host; configure the bridge in %s", networkFile)
	}
	return i.writeNetworkFile(networkText(subnet))
}

func (i *Initialiser) writeNetworkFile(text string) error {
	path := i.opts.Paths.Host(networkFile)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = atomicfile.Write(path, []byte(text), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot configure LXC's bridge: %w", err)
	}
	return nil
}

// pristine reports whether a configuration says no more than the package's own.
func pristine(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") && line != `USE_LXC_BRIDGE="true"` {
			return false
		}
	}
	return true
}

// networkText returns the configuration of a bridge with an address, e.g.
// 10.0.3.1/24.
func networkText(subnet string) string {
	prefix := subnet[:strings.LastIndexByte(subnet, '.')]
	return networkMark + fmt.Sprintf(`
USE_LXC_BRIDGE="true"
LXC_BRIDGE="%[1]s"
LXC_ADDR="%[2]s.1"
LXC_NETMASK="255.255.255.0"
LXC_NETWORK="%[2]s.0/24"
LXC_DHCP_RANGE="%[2]s.2,%[2]s.254,infinite"
LXC_DHCP_MAX="253"
`, Bridge, prefix)
}

// subnetOf returns the subnet in a configuration that hostler wrote, or the zero
// Prefix.
func subnetOf(text string) netip.Prefix {
	_, rest, _ := strings.Cut(text, "\nLXC_NETWORK=\"")
	value, _, _ := strings.Cut(rest, "\"")
	subnet, _ := netip.ParsePrefix(value)
	return subnet
}

// hasInstances reports whether liblxc has an instance on this host.
func (i *Initialiser) hasInstances() bool {
	found, _ := filepath.Glob(filepath.Join(i.opts.Paths.Host(i.opts.Path), "[^.]*", "config"))
	return len(found) > 0
}

func (i *Initialiser) underSystemd() bool {
	_, err := os.Stat(i.opts.Paths.SystemdRunning())
	return err == nil
}

// startNetwork makes the bridge if it is wanted and missing.
func (i *Initialiser) startNetwork(ctx context.Context, progress func(string)) error {
	if i.opts.NoBridge || i.hasBridge() {
		return nil
	}
	text, err := os.ReadFile(i.opts.Paths.Host(networkFile))
	if err == nil && !strings.HasPrefix(string(text), networkMark) && !pristine(string(text)) {
		return fault.New(fault.NeedsOperator, "cannot start LXC's bridge: %s is an administrator's and %s is not there; let it make %s, and run systemctl restart %s", networkFile, Bridge, Bridge, networkUnit)
	}
	progress("starting the bridge " + Bridge)
	err = i.tryNetwork(ctx)
	if err == nil && !i.hasBridge() {
		err = fmt.Errorf("%s is not there", Bridge)
	}
	if err != nil {
		return fault.New(fault.Transient, "cannot start LXC's bridge: %w; see %s", err, networkFile)
	}
	return nil
}

func (i *Initialiser) tryNetwork(ctx context.Context) error {
	// After the host or its network was reset, the script would take this file
	// for a bridge.
	if err := os.Remove(i.opts.Paths.Host("/run/lxc/network_up")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if i.underSystemd() {
		if err := i.systemctl(ctx, "restart", networkUnit); err != nil || i.hasBridge() {
			return err
		}
		path := i.opts.Paths.Host(networkDropIn)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		text := "# Written by hostler: the host is a container, where the unit does nothing otherwise.\n[Unit]\nConditionVirtualization=\n"
		if err := atomicfile.Write(path, []byte(text), 0o644); err != nil {
			return err
		}
		if err := i.systemctl(ctx, "daemon-reload"); err != nil {
			return err
		}
		return i.systemctl(ctx, "restart", networkUnit)
	}
	script, err := i.script()
	if err != nil {
		return err
	}
	_, err = i.opts.Full.Run(ctx, run.Command{Path: paths.Sh, Args: []string{script, "start"}, Timeout: time.Minute})
	return err
}

// script returns the package's script that makes the bridge.
func (i *Initialiser) script() (string, error) {
	for _, pattern := range []string{"/usr/libexec/lxc/lxc-net", "/usr/lib/*/lxc/lxc-net"} {
		found, _ := filepath.Glob(i.opts.Paths.Host(pattern))
		if len(found) > 0 {
			return found[0], nil
		}
	}
	return "", fault.New(fault.NeedsOperator, "the packages have no script lxc-net: make the bridge %s yourself", Bridge)
}

func (i *Initialiser) systemctl(ctx context.Context, args ...string) error {
	_, err := i.opts.Runner.Run(ctx, run.Command{Path: paths.Systemctl, Args: args, Timeout: time.Minute})
	return err
}
