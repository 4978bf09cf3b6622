package provisioner

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// S23: the machine's half of its attachments follows the instance, and stays as
// it is while the instance cannot be judged.
func TestHolds(t *testing.T) {
	is := func(s containerbroker.Status) *containerbroker.Instance {
		i := instance("web", func(i *containerbroker.Instance) { i.Status = s })
		return &i
	}
	none := []string{}
	data, www, both := []string{"volume/data"}, []string{"filesystem/www"}, []string{"filesystem/www", "volume/data"}
	for name, c := range map[string]struct {
		before            []string
		declared, offered []string
		inst              *containerbroker.Instance
		has               []string
		arrives, recorded bool
		life              state.Life
		want              []string
	}{
		"offered, with no instance":           {none, data, data, nil, nil, false, false, state.Alive, data},
		"offered, with a stopped instance":    {none, data, data, is(containerbroker.StatusStopped), nil, false, true, state.Alive, data},
		"offered, hypervisor busy":            {none, data, data, is(containerbroker.StatusBusy), nil, false, true, state.Alive, none},
		"not offered":                         {none, data, nil, nil, nil, false, false, state.Alive, none},
		"withdrawn from a running instance":   {data, data, nil, is(containerbroker.StatusRunning), data, false, true, state.Alive, data},
		"withdrawn from a paused instance":    {data, data, nil, is(containerbroker.StatusFrozen), data, false, true, state.Alive, data},
		"withdrawn from a stopped instance":   {data, data, nil, is(containerbroker.StatusStopped), data, false, true, state.Alive, none},
		"withdrawn, and its state is unknown": {data, data, nil, is(containerbroker.StatusUnknown), data, false, true, state.Alive, data},
		"withdrawn, and a create may arrive":  {data, data, nil, nil, nil, true, false, state.Alive, data},
		"withdrawn, with no instance":         {data, data, nil, nil, nil, false, true, state.Alive, none},
		"undeclared, and still attached":      {both, data, data, is(containerbroker.StatusStopped), both, false, true, state.Alive, both},
		"undeclared, and detached":            {both, data, data, is(containerbroker.StatusRunning), data, false, true, state.Alive, data},
		"undeclared, in a half-made instance": {www, nil, nil, is(containerbroker.StatusHalfMade), www, false, false, state.Alive, none},
		"of a machine that is removed":        {data, data, data, is(containerbroker.StatusStopped), data, false, true, state.Dying, data},
		"offered to a removed machine":        {none, data, data, nil, nil, false, false, state.Dying, none},
		"of an earlier version":               {nil, nil, nil, is(containerbroker.StatusRunning), www, false, true, state.Alive, www},
		"of an earlier version, unknown":      {nil, nil, nil, is(containerbroker.StatusUnknown), www, false, true, state.Alive, nil},
	} {
		d := Desired{Name: "web", UID: "uid-web", Life: c.life}
		if c.recorded {
			provisioned(&d)
		}
		d.Status.Uses = c.before
		disk := map[string]string{"volume/data": "vol-data", "filesystem/www": "fs-www"}
		if len(c.declared) > 0 {
			d.Record.Machine.Storage = []spec.Attachment{{Volume: "data"}}
		}
		for _, object := range c.declared {
			if !slices.Contains(c.offered, object) {
				d.Waiting = append(d.Waiting, object)
			}
		}
		diff := func(m containerbroker.Machine, _ containerbroker.Instance) (changes []containerbroker.Change) {
			for _, object := range c.has {
				if !slices.ContainsFunc(m.Disks, func(d containerbroker.Disk) bool { return d.Name == disk[object] }) {
					changes = append(changes, containerbroker.Change{Field: containerbroker.FieldDisk(disk[object])})
				}
			}
			return changes
		}
		got, _ := uses(&d, c.inst, c.arrives, diff)
		if !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// S23: a machine keeps what it uses while the driver refuses its declaration and so
// does not tell what the instance has.
func TestUsesOfARefusedDeclaration(t *testing.T) {
	d := machine("web", provisioned)
	d.Status.Uses, d.Status.UsesNICs = []string{"volume/data"}, []string{"network/lan/eth0"}
	i := instance("web")
	refuses := func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change {
		return containerbroker.Refused(errors.New("no"))
	}
	if storage, nics := uses(&d, &i, false, refuses); !slices.Equal(storage, d.Status.Uses) || !slices.Equal(nics, d.Status.UsesNICs) {
		t.Errorf("%v, %v", storage, nics)
	}
}

// I16: storage stays that of a machine whose instance cannot be read.
func TestUnreadableInstanceKeepsItsStorage(t *testing.T) {
	for _, life := range []state.Life{state.Alive, state.Dying} {
		d := machine("web", provisioned, func(d *Desired) { d.Life, d.Status.Uses = life, []string{"volume/data"} })
		inst := ownInstances([]Desired{d}, []containerbroker.Instance{instance("web", unreadable)}, Owner{Namespace: ns})[d.UID]
		if got, _ := uses(&d, inst, false, noDiff); !slices.Equal(got, d.Status.Uses) {
			t.Errorf("%s: %v", life, got)
		}
		s := assess(&d, inst, nil, t0)
		if c := spec.ConditionOf(s.Conditions, spec.ConditionUpToDate); life == state.Alive && (s.State != spec.MachineError || c.Status) {
			t.Errorf("it is %+v", s)
		}
		d.Status = s
		if again := assess(&d, inst, nil, t0.Add(time.Minute)); !reflect.DeepEqual(again, s) {
			t.Errorf("a minute later it is %+v, before %+v", again, s)
		}
		for _, step := range Plan([]Desired{d}, Observed{Complete: true, Instances: []containerbroker.Instance{instance("web", unreadable)}},
			Policy{Type: spec.LXD, Namespace: ns, Harvest: HarvestNone, Now: t0, Diff: noDiff}) {
			if step.Waiting == "" {
				t.Errorf("%s: planned %+v", life, step)
			}
		}
	}
}

// S23, A6: the machine's half of its NICs likewise. A NIC that the instance has
// on its former network shows as a difference.
func TestUsesOfNICs(t *testing.T) {
	is := func(s containerbroker.Status) *containerbroker.Instance {
		i := instance("web", func(i *containerbroker.Instance) { i.Status = s })
		return &i
	}
	none := []string{}
	lan, wan, both := []string{"network/lan/eth0"}, []string{"network/wan/eth0"}, []string{"network/lan/eth0", "network/wan/eth0"}
	for name, c := range map[string]struct {
		before   []string
		declared string // the network of eth0
		offered  bool
		inst     *containerbroker.Instance
		differs  []string // NICs of the instance that differ from the declared ones
		arrives  bool
		life     state.Life
		want     []string
	}{
		"offered, with no instance":            {none, "lan", true, nil, nil, false, state.Alive, lan},
		"not offered":                          {none, "lan", false, nil, nil, false, state.Alive, none},
		"in use":                               {lan, "lan", true, is(containerbroker.StatusRunning), nil, false, state.Alive, lan},
		"undeclared, and the instance has it":  {lan, "", false, is(containerbroker.StatusRunning), []string{"eth0"}, false, state.Alive, lan},
		"undeclared, in a stopped instance":    {lan, "", false, is(containerbroker.StatusStopped), []string{"eth0"}, false, state.Alive, lan},
		"undeclared, in a paused instance":     {lan, "", false, is(containerbroker.StatusFrozen), []string{"eth0"}, false, state.Alive, lan},
		"undeclared, and another NIC differs":  {lan, "", false, is(containerbroker.StatusRunning), []string{"eth1"}, false, state.Alive, none},
		"undeclared, and removed":              {lan, "", false, is(containerbroker.StatusRunning), nil, false, state.Alive, none},
		"undeclared, and a create may arrive":  {lan, "", false, nil, nil, true, state.Alive, lan},
		"undeclared, and its state is unknown": {lan, "", false, is(containerbroker.StatusUnknown), nil, false, state.Alive, lan},
		"moves, and is not offered yet":        {lan, "wan", false, is(containerbroker.StatusRunning), []string{"eth0"}, false, state.Alive, lan},
		"moves":                                {lan, "wan", true, is(containerbroker.StatusRunning), []string{"eth0"}, false, state.Alive, both},
		"moved":                                {both, "wan", true, is(containerbroker.StatusRunning), nil, false, state.Alive, wan},
		"of a machine that is removed":         {lan, "lan", true, is(containerbroker.StatusRunning), []string{"eth0"}, false, state.Dying, lan},
		"of a removed machine, gone":           {lan, "lan", true, nil, nil, false, state.Dying, none},
		"of an earlier version":                {nil, "lan", true, is(containerbroker.StatusRunning), nil, false, state.Alive, lan},
		"of an earlier version, differing":     {nil, "lan", true, is(containerbroker.StatusRunning), []string{"eth1"}, false, state.Alive, nil},
		"of an earlier version, no instance":   {nil, "lan", true, nil, nil, false, state.Alive, lan},
	} {
		d := Desired{Name: "web", UID: "uid-web", Life: c.life}
		if c.inst != nil {
			provisioned(&d)
		}
		d.Status.Uses, d.Status.UsesNICs = none, c.before
		if c.declared != "" {
			d.Record.Machine.Networks = map[string]spec.NIC{"eth0": {Network: c.declared}}
		}
		if c.offered {
			d.Machine.NICs = []containerbroker.NIC{{Name: "eth0"}}
		}
		diff := func(m containerbroker.Machine, _ containerbroker.Instance) (changes []containerbroker.Change) {
			if c.life == state.Dying && len(m.NICs) > 0 {
				t.Errorf("%s: compared with %v", name, m.NICs)
			}
			for _, nic := range c.differs {
				changes = append(changes, containerbroker.Change{Field: "nic " + nic})
			}
			return changes
		}
		if _, got := uses(&d, c.inst, c.arrives, diff); !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The hypervisor learns the names of all disks that the machine declares or
// uses, since it may show a long name cut.
func TestKnownDisks(t *testing.T) {
	d := Desired{Name: "web", UID: "uid-web", Life: state.Alive}
	d.Record.Machine.Storage = []spec.Attachment{{Volume: "data"}}
	d.Status.Uses = []string{"filesystem/www", "volume/old"}
	if got, want := (Config{}).Resolve(d).KnownDisks, []string{"vol-data", "fs-www", "vol-old"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
