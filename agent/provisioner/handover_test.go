package provisioner_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
)

// attachment writes the sources of a network's or storage object's attachments.
// A second call keeps the record's generation.
func (r *rig) attachment(kind, name string, sources map[string]string) {
	r.t.Helper()
	id := state.ID{Kind: kind, Name: name}
	status := spec.StorageStatus{Attachments: map[string]spec.AttachmentStatus{}}
	for machine, source := range sources {
		status.Attachments[machine] = spec.AttachmentStatus{State: spec.StorageAttached, Source: source}
	}
	w := state.Write{ID: id, Spec: spec.Encode(spec.VolumeRecord{}), Life: state.Alive, Status: spec.Encode(status)}
	if _, err := r.store.Get(r.t.Context(), id); err == nil {
		w.Revision = state.AnyRevision
	}
	r.write(w)
}

// disks returns the names of the instance's disks.
func (r *rig) disks(machine string) (names []string) {
	inst, _ := r.fake.Get(machine)
	for _, c := range r.fake.Diff(containerbroker.Machine{Name: machine}, inst) {
		if disk, is := containerbroker.DiskOf(c.Field); is {
			names = append(names, disk)
		}
	}
	slices.Sort(names)
	return names
}

func storage(volumes ...string) func(*spec.MachineRecord) {
	return func(m *spec.MachineRecord) {
		for _, v := range volumes {
			m.Machine.Storage = append(m.Machine.Storage, spec.Attachment{Volume: v})
		}
	}
}

// letsGo waits until the machine's status says that it uses no storage beyond
// its record.
func (r *rig) letsGo(machine string, o state.Object) spec.MachineStatus {
	r.t.Helper()
	var record spec.MachineRecord
	if err := json.Unmarshal(o.Spec, &record); err != nil {
		r.t.Fatal(err)
	}
	r.eventually(machine+" lets go", func() bool {
		s, _ := r.status(machine)
		return !slices.ContainsFunc(s.Uses, func(object string) bool {
			return !slices.ContainsFunc(record.Machine.Storage, func(a spec.Attachment) bool { return a.Object() == object })
		})
	})
	s, _ := r.status(machine)
	return s
}

// P19, S23: an undeclared disk is detached although the machine waits for
// another disk in its place, since that disk may wait for the detachment. It also
// gets its limits. Changes that concern the attachments or need a restart wait.
func TestDiskIsDetachedWhileTheMachineWaits(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("a", 70)
	r.attachment(spec.KindVolume, "one", map[string]string{"web": "/dev/loop1"})
	r.attachment(spec.KindVolume, "two", nil)
	r.attachment(spec.KindVolume, long, map[string]string{"web": "/dev/loop3"})
	r.declare("web", storage("one", long))
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.attachment(spec.KindVolume, long, nil)
	o := r.declare("web", storage("two", long), func(m *spec.MachineRecord) {
		m.Machine.CPUs, m.Machine.Memory, m.Machine.Nesting = 3, 1<<30, true
		m.Consent([]string{"restart"})
	})
	s := r.letsGo("web", o)
	if got := r.disks("web"); !slices.Equal(got, []string{"vol-" + long}) {
		t.Errorf("it has %v", got)
	}
	if s.ObservedGeneration >= o.Generation || !strings.Contains(s.Message, "volume/two") {
		t.Errorf("%+v", s)
	}
	r.eventually("its limits", func() bool { inst, _ := r.fake.Get("web"); return inst.CPUs == 3 && inst.Memory == 1<<30 })
	r.awaitPass()
	if inst, _ := r.fake.Get("web"); inst.Nesting {
		t.Errorf("it was changed otherwise: %+v", inst)
	}
	r.attachment(spec.KindVolume, long, map[string]string{"web": "/dev/loop3"})
	r.attachment(spec.KindVolume, "two", map[string]string{"web": "/dev/loop2"})
	r.eventually("what it waited for", func() bool { inst, _ := r.fake.Get("web"); return len(r.disks("web")) == 2 && inst.Nesting })
}

// S23: neither a held change nor a failure prevents the detachment of a disk.
func TestDiskIsDetachedBesideHeldAndFailingChanges(t *testing.T) {
	t.Run("held back", func(t *testing.T) {
		r := newRig(t)
		r.attachment(spec.KindVolume, "one", map[string]string{"web": "/dev/loop1"})
		r.declare("web", storage("one"))
		r.start()
		r.awaitState("web", spec.MachineRunning)
		o := r.declare("web", func(m *spec.MachineRecord) { m.Machine.Privileged = true })
		r.letsGo("web", o)
		if got := r.disks("web"); len(got) != 0 {
			t.Errorf("it has %v", got)
		}
	})
	t.Run("failing", func(t *testing.T) {
		r := newRig(t)
		r.attachment(spec.KindVolume, "one", map[string]string{"web": "/dev/loop1"})
		r.declare("web", storage("one"))
		r.start()
		r.awaitState("web", spec.MachineRunning)
		r.fake.Fail(brokertest.SetPower, "web", -1, errors.New("no luck"))
		o := r.declare("web", func(m *spec.MachineRecord) { m.RestartRequest++ })
		r.eventually("a failure", func() bool { s, _ := r.status("web"); return s.Attempts.Count > 0 })
		if s := r.letsGo("web", o); s.State == spec.MachineRunning || len(r.disks("web")) != 0 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("not taken away", func(t *testing.T) {
		r := newRig(t)
		r.attachment(spec.KindVolume, "one", map[string]string{"web": "/dev/loop1"})
		r.declare("web", storage("one"))
		r.start()
		r.awaitState("web", spec.MachineRunning)
		r.fake.Fail(brokertest.Update, "web", -1, errors.New("no luck"))
		r.declare("web")
		r.eventually("a failure", func() bool { s, _ := r.status("web"); return s.Attempts.Count > 0 })
		r.awaitPass()
		if s, _ := r.status("web"); !slices.Contains(s.Uses, "volume/one") || len(r.disks("web")) != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// S23: a machine does not get storage whose offer is withdrawn while the machine
// takes it: the storage worker may not have read that the machine uses it.
func TestOfferThatIsWithdrawnMeanwhile(t *testing.T) {
	r := newRig(t)
	r.attachment(spec.KindVolume, "one", map[string]string{"web": "/dev/loop1"})
	r.declare("web", storage("one"))
	took := func(w state.Write) bool {
		var s spec.MachineStatus
		return w.Kind == spec.KindMachine && json.Unmarshal(w.Status, &s) == nil && slices.Contains(s.Uses, "volume/one")
	}
	var withdrawn atomic.Bool
	r.backend = badStore{Backend: r.store, write: func(w state.Write) error {
		if took(w) && !withdrawn.Swap(true) {
			r.attachment(spec.KindVolume, "one", nil)
		}
		return nil
	}}
	r.start()
	r.eventually("the machine lets go", func() bool { s, _ := r.status("web"); return withdrawn.Load() && s.Uses != nil && len(s.Uses) == 0 })
	r.awaitPass()
	if _, made := r.fake.Get("web"); made {
		t.Error("the instance was made with it")
	}
	r.attachment(spec.KindVolume, "one", map[string]string{"web": "/dev/loop2"})
	r.awaitState("web", spec.MachineRunning)
	if s, _ := r.status("web"); !slices.Contains(s.Uses, "volume/one") || !slices.Equal(r.disks("web"), []string{"vol-one"}) {
		t.Errorf("%+v, it has %v", s, r.disks("web"))
	}
}

// A6, S23: nor does a machine get a NIC whose network changes while the machine
// takes it. It then gets the NIC as it is offered next.
func TestNetworkThatChangesMeanwhile(t *testing.T) {
	r := newRig(t)
	lan := func(bridge string, revision int64) {
		n := spec.Network{Bridge: bridge}
		status := spec.NetworkStatus{State: "ready", Applied: &n, Guests: map[string]spec.GuestAddress{"web/eth0": {MAC: "02:00:00:00:00:01"}}}
		if bridge == "" {
			status = spec.NetworkStatus{State: "pending"}
		}
		r.write(state.Write{
			ID: state.ID{Kind: spec.KindNetwork, Name: "lan"}, Life: state.Alive, Revision: revision,
			Spec: spec.Encode(spec.NetworkRecord{Network: n}), Status: spec.Encode(status),
		})
	}
	lan("br-old", 0)
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.Networks = map[string]spec.NIC{"eth0": {Network: "lan"}} })
	var withdrawn atomic.Bool
	r.backend = badStore{Backend: r.store, write: func(w state.Write) error {
		var s spec.MachineStatus
		if w.Kind == spec.KindMachine && json.Unmarshal(w.Status, &s) == nil && slices.Contains(s.UsesNICs, "network/lan/eth0") && !withdrawn.Swap(true) {
			lan("", state.AnyRevision)
		}
		return nil
	}}
	r.start()
	r.eventually("the machine lets go", func() bool {
		s, _ := r.status("web")
		return withdrawn.Load() && s.UsesNICs != nil && len(s.UsesNICs) == 0
	})
	r.awaitPass()
	if _, made := r.fake.Get("web"); made {
		t.Error("the instance was made with it")
	}
	lan("br-new", state.AnyRevision)
	r.awaitState("web", spec.MachineRunning)
	if s, _ := r.status("web"); !slices.Contains(s.UsesNICs, "network/lan/eth0") {
		t.Errorf("%+v", s)
	}
	r.declare("web")
	r.eventually("the machine lets go", func() bool {
		s, _ := r.status("web")
		return len(s.UsesNICs) == 0 && s.State == spec.MachineRunning
	})
	inst, _ := r.fake.Get("web")
	for _, c := range r.fake.Diff(containerbroker.Machine{Name: "web"}, inst) {
		if _, is := containerbroker.NICOf(c.Field); is {
			t.Errorf("the instance has %+v", c)
		}
	}
}

// S23: a machine does not take storage while the store refuses to write that it
// uses it: the storage worker would not know.
func TestUseThatCannotBeWritten(t *testing.T) {
	r := newRig(t)
	r.attachment(spec.KindVolume, "one", map[string]string{"web": "/dev/loop1"})
	r.declare("web", storage("one"))
	var refused, accepts atomic.Bool
	r.backend = badStore{Backend: r.store, refuse: func(w state.Write) error {
		var s spec.MachineStatus
		if !accepts.Load() && w.Kind == spec.KindMachine && json.Unmarshal(w.Status, &s) == nil && slices.Contains(s.Uses, "volume/one") {
			refused.Store(true)
			return fault.New(fault.Conflict, "another write came first")
		}
		return nil
	}}
	r.start()
	r.eventually("a refused write", refused.Load)
	r.awaitPass()
	if n := r.fake.Calls(brokertest.Create); n > 0 {
		t.Errorf("%d creates without a word to the storage worker", n)
	}
	accepts.Store(true)
	r.awaitState("web", spec.MachineRunning)
}
