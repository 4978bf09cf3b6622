package networkprovisioner

import (
	"net/netip"
	"slices"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
)

// kinds returns the object kinds that the worker reads and watches.
func kinds() []string { return []string{spec.KindNetwork, spec.KindMachine, spec.KindHost} }

// Decode extracts the data about networks from a list of objects. A single
// unreadable record makes Decode fail, because a plan from partial data would
// be wrong.
func Decode(objects []state.Object) (Desired, error) { return newDecoder().desired(objects) }

// decoder caches the decoded objects.
type decoder struct {
	networks reconcile.Cache[Network]
	machines reconcile.Cache[Machine]
}

func newDecoder() decoder { return decoder{reconcile.Cache[Network]{}, reconcile.Cache[Machine]{}} }

func (k decoder) desired(objects []state.Object) (Desired, error) {
	var d Desired
	for _, o := range objects {
		switch o.Kind {
		case spec.KindNetwork:
			n, err := k.networks.Decode(o, decodeNetwork)
			if err != nil {
				return Desired{}, err
			}
			d.Networks = append(d.Networks, n)
		case spec.KindMachine:
			g, err := k.machines.Decode(o, decodeMachine)
			if err != nil {
				return Desired{}, err
			}
			d.Machines = append(d.Machines, g)
		}
	}
	k.networks.Keep(objects)
	k.machines.Keep(objects)
	d.index = indexOf(d)
	return d, nil
}

// index holds the positions of networks and guests in Desired.
type index struct {
	named   map[string]int   // guests by name
	on      map[string][]int // guests by declared network
	bridged map[string][]int // networks by bridge
}

func indexOf(d Desired) *index {
	x := &index{map[string]int{}, map[string][]int{}, map[string][]int{}}
	for i, n := range d.Networks {
		x.bridged[n.Record.Network.Bridge] = append(x.bridged[n.Record.Network.Bridge], i)
	}
	for i, g := range d.Machines {
		x.named[g.Name] = i
		for _, nic := range g.NICs {
			x.on[nic.Network] = append(x.on[nic.Network], i)
		}
	}
	return x
}

// guestsOf returns the guests that may be on a network, i.e. the guests that
// declare the network or are in its status.
func (d Desired) guestsOf(n Network) []Machine {
	places := slices.Clone(d.index.on[n.Name])
	for k := range n.Status.Guests {
		if i, there := d.index.named[ownerOf(k).Machine]; there {
			places = append(places, i)
		}
	}
	slices.Sort(places)
	return pick(d.Machines, slices.Compact(places))
}

// machine returns the machine of this name, or an empty Machine if there is
// none.
func (d Desired) machine(name string) (g Machine) {
	if i, there := d.index.named[name]; there {
		g = d.Machines[i]
	}
	return g
}

// networksOn returns the networks that declare the bridge.
func (d Desired) networksOn(bridge string) []Network {
	return pick(d.Networks, d.index.bridged[bridge])
}

func pick[T any](all []T, places []int) []T {
	some := make([]T, len(places))
	for n, i := range places {
		some[n] = all[i]
	}
	return some
}

func decodeNetwork(o state.Object) (Network, error) {
	n := Network{Name: o.Name, UID: o.UID, Life: o.Life, Generation: o.Generation}
	err := o.Decode(&n.Record, &n.Status)
	return n, err
}

func decodeMachine(o state.Object) (Machine, error) {
	var record spec.MachineRecord
	var status spec.MachineStatus
	if err := o.Decode(&record, &status); err != nil {
		return Machine{}, err
	}
	matches := status.ObservedGeneration >= o.Generation && spec.AttachmentsMatch(status.Conditions) && status.Attempts.ErrorKind == "" &&
		(status.State == spec.MachineRunning || status.State == spec.MachineStopped)
	g := Machine{
		Name: o.Name, UID: o.UID, Dying: o.Life != state.Alive, NICs: record.Machine.Networks, Publish: record.Machine.Publish,
		Status: status,
	}
	g.AttachmentsMatch = matches || !g.made()
	for _, text := range status.Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			g.Addresses = append(g.Addresses, a)
		}
	}
	return g, nil
}

// ConfigOf extracts the network policy from the host's record.
func ConfigOf(r spec.HostRecord) Policy {
	return Policy{Namespace: r.Config.Namespace, Sweep: r.HarvestsUnknown()}
}
