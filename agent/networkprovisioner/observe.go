package networkprovisioner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hostler/hostnet"
	"hostler/hostnet/dhcp"
	"hostler/hostnet/firewall"
	"hostler/hostnet/guard"
	"hostler/hostnet/ipam"
	"hostler/hostnet/persist"
	"hostler/hostnet/resolvconf"
)

// Guard makes changes of the host's own network and undoes a change that breaks
// the host's connection; see package guard.
type Guard interface {
	// Run returns nil if the change is final, and fault.NotReady if it awaits
	// confirmation.
	Run(ctx context.Context, c guard.Change) error
}

// Guarding reports the progress of guarded changes; see package guard.
type Guarding interface {
	Armed() (guard.Armed, bool)
	Refused(object, key string) string
}

// BootPersister makes bridges over host NICs survive a reboot.
type BootPersister interface {
	// Persist makes a bridge survive a reboot.
	Persist(ctx context.Context, b persist.Bridge) error
	// Holds reports whether Persist would change nothing.
	Holds(b persist.Bridge) bool
	// Drop undoes Persist. It succeeds for a bridge that is not persistent.
	Drop(ctx context.Context, bridge string) error
	// Bridges returns the persistent bridges.
	Bridges() []string
	// Restored returns, by bridge, the NICs that their manager itself puts under the
	// bridge. Restore makes the manager of such a bridge's NIC do so now.
	Restored() map[string]string
	Restore(ctx context.Context, bridge string) error
	// Pause ends the DHCP client of a link, because the client would undo a
	// change of the link's addresses. Resume starts the ended clients of the
	// links for which bears() returns true, and reports whether a client stays
	// ended.
	Pause(ctx context.Context, link string) error
	Resume(ctx context.Context, bears func(link string) bool) (left bool, err error)
	// Obstacle returns why a NIC's DHCP client prevents the NIC from joining a
	// bridge, or "".
	Obstacle(nic persist.NIC) string
}

// OwnNetwork is the observed state of the host's own network.
type OwnNetwork struct {
	// Refused holds the reasons why the guard does not repeat undone changes,
	// by the network's name.
	Refused map[string]string
	// Armed is the object whose change is not final yet, or "". Waits is a
	// sentence about this change for the status.
	Armed, Waits string
	// Persistent are the bridges that survive a reboot. Persists is true if the
	// agent can make bridges survive a reboot.
	Persistent []string
	Persists   bool
	// Restored are the NICs that their manager itself puts under a bridge, by
	// bridge.
	Restored map[string]string
}

// Tables are an observation of the host's nftables tables.
type Tables interface {
	// Holds reports whether our table has exactly these rules.
	Holds(r firewall.Rules) bool
	// Findings returns the foreign chains that block declared flows.
	Findings(r firewall.Rules) []firewall.Finding
	// Recall returns those of the networks that have rules in our table, with
	// the settings of these rules.
	Recall(networks []firewall.Network) []firewall.Network
}

// Eyes observe the host without changing it.
type Eyes struct {
	Host interface {
		Observe(ctx context.Context) (hostnet.Observed, error)
	}
	// Root is the prefix of the host's paths. ServerDir has a folder for each
	// network with the files of its DHCP server. The folder's name is the
	// network's uid.
	Root, ServerDir string
	Server          func(uid string) Server
	// If Guard and Persister are nil, the worker changes no host NIC.
	Guard     Guarding
	Persister BootPersister
	// Instances returns the lower-case MAC addresses of all instances on the
	// host's hypervisors. It is nil if there are no hypervisors.
	Instances func(ctx context.Context) (map[string]bool, error)
	// Tables reads the host's nftables tables. It is nil for plans that are
	// only shown, because these do not depend on the tables.
	Tables func(ctx context.Context) (Tables, error)
	// Now returns the time. If nil, it is time.Now.
	Now func() time.Time

	// The worker sets these fields. They are nil for plans that are only shown.
	tools      Tools
	parameters Parameters
	left       map[string]kept
}

// kept is a part of the host's state that a pass left. holds reports whether
// the host still has it.
type kept struct {
	wanted string
	holds  func() bool // changes nothing
}

// Server is the DHCP server of a network; see package dhcp.
type Server interface {
	Ensure(ctx context.Context, n dhcp.Network) (started bool, err error)
	Running() bool
	// Holds reports whether the server runs with this configuration.
	Holds(n dhcp.Network) bool
	Remove(ctx context.Context) error
}

// Observe reads everything that a plan depends on, or fails.
func (e Eyes) Observe(ctx context.Context, d Desired) (Observed, error) {
	o := Observed{Serving: map[string]bool{}, Served: map[string]bool{}}
	// Read the guard before the host. A change that is undone during the
	// observation then still counts as armed, and its end causes another pass.
	o.Own = e.ownNetwork(d)
	var err error
	if o.Host, err = e.Host.Observe(ctx); err != nil {
		return o, fmt.Errorf("cannot look at the host's network: %w", err)
	}
	o.Obstacles = e.obstacles(d, o.Host)
	entries, err := os.ReadDir(e.ServerDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return o, fmt.Errorf("cannot look for DHCP servers: %w", err)
	}
	for _, entry := range entries {
		o.Served[entry.Name()] = true
	}
	for _, n := range d.Networks {
		if o.Served[n.UID] {
			o.Serving[n.UID] = e.Server(n.UID).Running()
		}
	}
	_, err = os.Stat(filepath.Join("/", e.Root, "/proc/sys/net/ipv6/conf/all/forwarding"))
	o.IPv6 = err == nil
	// The kernel walks its whole table of connections for this, some 10 ms.
	if slices.ContainsFunc(d.Machines, func(g Machine) bool { return len(g.Publish) > 0 }) {
		o.Listening = hostnet.Listening(filepath.Join("/", e.Root, "/proc/net"))
	}
	o.Resolvers = resolvconf.Read(e.Root)
	o.Using = e.using(ctx, d)
	e.look(ctx, &o)
	return o, nil
}

// look reads the parts of the host that a pass sets: the firewall, the kernel
// parameters and the parts in e.left. A part that it cannot read counts as
// changed by another process.
func (e Eyes) look(ctx context.Context, o *Observed) {
	if e.tools != nil {
		o.Missing.NFT, o.Missing.DHCP = !e.tools.Have(false), !e.tools.Have(true)
	}
	if e.Tables != nil && !o.Missing.NFT {
		tables, err := e.Tables(ctx)
		if o.TablesErr = err; err == nil {
			o.Tables = tables
		}
	}
	if e.parameters != nil {
		o.Owned, o.AcceptRA = map[string][]string{}, map[string]string{}
		for _, owner := range []string{ownerRouters, ownerNetworks} {
			o.Owned[owner], _ = e.parameters.Owned(owner)
		}
		for _, name := range uplinkParameters(*o) {
			if value, err := e.parameters.Read(name); err == nil {
				o.AcceptRA[name] = value
			}
		}
	}
	if e.left != nil {
		o.Left = map[string]Left{}
		for key, l := range e.left {
			o.Left[key] = Left{Wanted: l.wanted, Holds: l.holds()}
		}
	}
}

// obstacles returns, by NIC, the reasons why NICs that are not under their
// declared bridge yet cannot join it.
func (e Eyes) obstacles(d Desired, host hostnet.Observed) map[string]string {
	all := map[string]string{}
	if e.Persister == nil {
		return all
	}
	for _, n := range d.Networks {
		for i, nic := range n.Record.Network.Interfaces {
			l, there := host.Link(nic)
			if !there || l.Master == n.Record.Network.Bridge {
				continue
			}
			leased := slices.ContainsFunc(host.AddressesOf(nic), func(a hostnet.Address) bool { return leasedAddress(a) && a.Prefix.Addr().Is4() })
			was := n.Status.Applied
			before := was != nil && slices.Contains(was.Interfaces, nic) || d.madeBridge(host, l.Master)
			if why := e.Persister.Obstacle(persist.NIC{Name: nic, Index: l.Index, Leased: leased, Later: i > 0, Before: before}); why != "" {
				all[nic] = why
			}
		}
	}
	return all
}

// madeBridge reports whether the link is the bridge of a recorded network.
func (d Desired) madeBridge(host hostnet.Observed, link string) bool {
	l, _ := host.Link(link)
	_, uid, ours := hostnet.ParseStamp(l.Alias)
	return ours && slices.ContainsFunc(d.Networks, func(n Network) bool { return n.UID == uid })
}

// ownNetwork reads the guard's state.
func (e Eyes) ownNetwork(d Desired) OwnNetwork {
	own := OwnNetwork{Refused: map[string]string{}}
	if e.Guard == nil {
		return own
	}
	for _, n := range d.Networks {
		if reason := e.Guard.Refused(object(n), guardKey(n)); reason != "" {
			own.Refused[n.Name] = reason
		}
	}
	if a, armed := e.Guard.Armed(); armed {
		own.Armed, own.Waits = a.Object, "a change of the host's own network is under way"
		if a.Phase == guard.Confirming {
			own.Waits = "waits for `hostler confirm`; without it the change is reverted"
		}
	}
	if e.Persister != nil {
		own.Persistent, own.Persists, own.Restored = e.Persister.Bridges(), true, e.Persister.Restored()
	}
	return own
}

// lookBefore is the time before the end of a quarantine from which each
// observation looks for the instances. It exceeds the time between observation
// and plan.
const lookBefore = time.Minute

// using asks the hypervisors whether instances of removed machines still exist,
// by the MAC addresses of their NICs. It asks only if another machine is about
// to get an address, i.e. at the end of the address's quarantine or if a new
// machine has the same name. If the hypervisors do not answer, all entries are
// true.
func (e Eyes) using(ctx context.Context, d Desired) map[string]bool {
	if e.Instances == nil {
		return nil
	}
	all := map[string]bool{}
	for _, n := range d.Networks {
		wants := d.wantsOn(n)
		for k, g := range n.Status.Guests {
			if g.Released == nil || g.MAC == "" {
				continue
			}
			base, _, _ := strings.Cut(k, "#")
			w, again := wants[base]
			again = again && base == k && guestMAC(w.uid, ownerOf(base).NIC) != g.MAC
			if again || e.now().Sub(*g.Released) >= ipam.Quarantine-lookBefore {
				all[g.MAC] = true
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	there, err := e.Instances(ctx)
	for mac := range all {
		all[mac] = err != nil || there[mac]
	}
	return all
}

func (e Eyes) now() time.Time {
	if e.Now == nil {
		return time.Now()
	}
	return e.Now()
}
