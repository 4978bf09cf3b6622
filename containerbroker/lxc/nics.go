package lxc

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// defaultNIC is the name of the interface that an instance without declared
// interfaces has.
const defaultNIC = "eth0"

// putNIC writes an interface to a config. It keeps an interface that has these
// values. The host's end always has the name by which the firewall recognises
// the guest. The config names no address: the guest's own network configuration
// would remove it.
func (d *Driver) putNIC(c *config, n *note, m containerbroker.Machine, nic containerbroker.NIC) {
	if n.NICs == nil {
		n.NICs = map[string]givenNIC{}
	}
	n.NICs[nic.Name] = givenNIC{Addresses: nic.Addresses}
	if n.Default == nic.Name {
		n.Default = ""
	}
	putInterface(c, d.filled(m, nic))
}

// putDefault gives an instance the interface of a machine that declares none,
// if such machines have one.
func (d *Driver) putDefault(c *config, n *note, uid string) {
	if d.opts.Bridge == "" {
		return
	}
	n.Default = defaultNIC
	delete(n.Dropped, defaultNIC)
	putInterface(c, containerbroker.NIC{Name: defaultNIC, Bridge: d.opts.Bridge, MAC: macOf(uid, defaultNIC), MTU: d.opts.MTU})
}

// replug brings the interfaces of a running guest from an old config to a new
// one. Interfaces that are the same in both stay plugged in. Those of hostler
// that the guest lacks are plugged in again, and removed ones that came back go.
func (d *Driver) replug(ctx context.Context, pid int, had, want config, n *note) error {
	if own, err := d.ownsNetwork(pid); err != nil || !own {
		return fault.Explain(cmp.Or(err, errHostNetwork), "cannot change its interfaces")
	}
	same := func(i iface, c config) bool {
		other, is := c.findNIC(i.name)
		other.index = i.index
		return is && other == i
	}
	moves := func(name string) bool { // to another bridge, and nothing else changes
		from, had := had.findNIC(name)
		to, wanted := want.findNIC(name)
		from.link, from.index = to.link, to.index
		return had && wanted && from == to && to.pair != "" && d.hasLink(to.pair)
	}
	for _, i := range had.interfaces() {
		if !same(i, want) && !moves(i.name) {
			if err := d.unplugNIC(ctx, pid, i); err != nil {
				return err
			}
		}
	}
	for _, i := range want.interfaces() {
		_, given := n.NICs[i.name]
		if !same(i, had) && moves(i.name) {
			if err := d.moveNIC(ctx, i); err != nil {
				return err
			}
		} else if !same(i, had) || given && !d.hasLink(i.pair) {
			if err := d.plugNIC(ctx, pid, i); err != nil {
				return err
			}
		}
	}
	for name, pair := range n.Dropped {
		if d.cameBack(pid, name, pair) {
			if err := d.removeInside(ctx, pid, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// moveNIC puts the host's end of an interface under its bridge. The guest keeps the
// interface with its addresses. It sees the carrier go and come, so that a DHCP client asks
// again.
func (d *Driver) moveNIC(ctx context.Context, i iface) error {
	batch := fmt.Sprintf("link set %[1]s master %[2]s\nlink set %[1]s down\nlink set %[1]s up\n", i.pair, i.link)
	_, err := d.opts.Runner.Run(ctx, run.Command{Path: paths.IP, Args: []string{"-batch", "-"}, Stdin: strings.NewReader(batch)})
	return fault.Explain(err, "cannot move %s to the bridge %s", i.name, i.link)
}

// cameBack reports whether a guest has a removed interface again. The host's end
// alone could be another guest's that has the MAC address now.
func (d *Driver) cameBack(pid int, name, pair string) bool {
	is, err := d.inside(pid, name)
	return is && err == nil && d.hasLink(pair)
}

var errHostNetwork = fault.New(fault.NeedsOperator,
	"it uses the host's network: give it one of its own in its config, e.g. by lxc.net.0.type = empty, and restart it")

// ownsNetwork reports whether a guest has another network namespace than the host.
// Else a change would remove devices of the host.
func (d *Driver) ownsNetwork(pid int) (bool, error) {
	guest, err := os.Stat(d.process(pid, "ns/net"))
	if err != nil {
		return false, fault.New(fault.Transient, "its init has ended: %w", err)
	}
	host, err := os.Stat(filepath.Join(d.opts.Proc, "thread-self/ns/net"))
	return err == nil && !os.SameFile(guest, host), err
}

// plugNIC makes a pair of devices, one of them in the guest's network. It first
// removes a pair that an interrupted call left, and the interface that the
// monitor's old settings gave to the guest when the guest rebooted.
func (d *Driver) plugNIC(ctx context.Context, pid int, i iface) error {
	d.removeLink(ctx, i.pair)
	if err := d.removeInside(ctx, pid, i.name); err != nil {
		return err
	}
	mtu := ""
	if i.mtu != 0 {
		mtu = " mtu " + strconv.Itoa(i.mtu)
	}
	batch := fmt.Sprintf("link add %s%s type veth peer name %s address %s%s netns %d\nlink set %s master %s up\n",
		i.pair, mtu, i.name, i.hwaddr, mtu, pid, i.pair, i.link)
	_, err := d.opts.Runner.Run(ctx, run.Command{Path: paths.IP, Args: []string{"-batch", "-"}, Stdin: strings.NewReader(batch)})
	if err == nil {
		_, err = d.opts.Runner.Run(ctx, run.Command{
			Path: paths.Nsenter, Args: []string{"-t", strconv.Itoa(pid), "-n", paths.IP, "link", "set", i.name, "up"},
		})
	}
	if err != nil {
		d.removeLink(context.WithoutCancel(ctx), i.pair)
		return fmt.Errorf("cannot plug in %s: %w", i.name, err)
	}
	return nil
}

// unplugNIC removes an interface. The removal of one end removes the other.
func (d *Driver) unplugNIC(ctx context.Context, pid int, i iface) error {
	if i.pair != "" {
		return fault.Explain(d.deleteLink(ctx, i.pair), "cannot unplug %s", i.name)
	}
	return d.removeInside(ctx, pid, i.name) // liblxc chose the name of the host's end
}

// inside reports whether a guest has an interface of that name.
func (d *Driver) inside(pid int, name string) (bool, error) {
	devices, err := readProc(d.process(pid, "net/dev"))
	if err != nil {
		return false, fault.New(fault.Transient, "its init has ended: %w", err)
	}
	return strings.Contains("\n"+strings.ReplaceAll(devices, " ", ""), "\n"+name+":"), nil
}

// removeInside removes an interface in the guest, if there is one of that name.
func (d *Driver) removeInside(ctx context.Context, pid int, name string) error {
	if is, err := d.inside(pid, name); !is || err != nil {
		return err
	}
	_, err := d.opts.Runner.Run(ctx, run.Command{
		Path: paths.Nsenter, Args: []string{"-t", strconv.Itoa(pid), "-n", paths.IP, "link", "delete", name},
	})
	return fault.Explain(err, "cannot unplug %s", name)
}

func readProc(path string) (string, error) {
	text, err := os.ReadFile(path)
	return string(text), err
}
