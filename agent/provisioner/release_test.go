package provisioner_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
)

// theirs returns an instance of that name that belongs to another agent.
func theirs(name string) containerbroker.Instance {
	return containerbroker.Instance{
		Name: name, Status: containerbroker.StatusRunning,
		Stamp: &containerbroker.Stamp{Namespace: "second", UID: "theirs", Token: "theirs"},
	}
}

// P28: the release of a machine whose instance was renamed by hand detaches the
// volumes of that instance, and leaves another instance under the machine's
// name alone.
func TestP28ReleaseOfARenamedInstance(t *testing.T) {
	r := newRig(t)
	r.attachment(spec.KindVolume, "data", map[string]string{"web": "/dev/loop1"})
	r.declare("web", storage("data"), func(m *spec.MachineRecord) { m.Machine.Retain = true })
	r.start()
	r.awaitState("web", spec.MachineRunning)
	r.fake.Rename("web", "web-old")
	r.fake.Add(theirs("web"))
	r.remove("web")
	r.awaitGone("web")
	if inst, _ := r.fake.Get("web-old"); inst.Stamp != nil || len(r.disks("web-old")) != 0 {
		t.Errorf("the renamed instance has %v and bears %+v", r.disks("web-old"), inst.Stamp)
	}
	if inst, _ := r.fake.Get("web"); inst.Stamp == nil || inst.Stamp.Namespace != "second" {
		t.Errorf("the other agent's instance bears %+v", inst.Stamp)
	}
	if ops := r.fake.Operations(); slices.ContainsFunc(ops, func(op string) bool { return strings.HasPrefix(op, "update web ") || op == "unstamp web" }) {
		t.Errorf("operations: %v", ops)
	}
}

// P28: the stamp also stays on an instance that took the name between the
// listing and the release.
func TestP28RenamedWhileItIsReleased(t *testing.T) {
	r := newRig(t)
	r.declare("web", func(m *spec.MachineRecord) { m.Machine.Retain = true })
	r.start()
	r.awaitState("web", spec.MachineRunning)
	release := r.fake.Block(brokertest.Unstamp, "web")
	r.remove("web")
	r.eventually("a release in flight", func() bool { return r.fake.Calls(brokertest.Unstamp) == 1 })
	r.fake.Rename("web", "web-old")
	r.fake.Add(theirs("web"))
	release()
	r.awaitGone("web")
	if inst, _ := r.fake.Get("web"); inst.Stamp == nil || inst.Stamp.Namespace != "second" {
		t.Errorf("the other agent's instance bears %+v", inst.Stamp)
	}
	if inst, _ := r.fake.Get("web-old"); inst.Stamp != nil {
		t.Errorf("the renamed instance bears %+v", inst.Stamp)
	}
}

// P23: an instance that outlives its record keeps running without its volumes,
// because the kernel may reuse their device numbers for other volumes. If the
// volumes cannot be detached, the record stays and says why.
func TestInstanceThatOutlivesItsRecordLosesItsVolumes(t *testing.T) {
	r := newRig(t)
	r.config.Harvest = provisioner.HarvestNone
	object := func(kind, name, source string, record any) {
		r.write(state.Write{
			ID: state.ID{Kind: kind, Name: name}, Spec: spec.Encode(record), Life: state.Alive,
			Status: spec.Encode(spec.StorageStatus{Attachments: map[string]spec.AttachmentStatus{"web": {State: spec.StorageAttached, Source: source}}}),
		})
	}
	object(spec.KindVolume, "data", "/dev/loop7", spec.VolumeRecord{})
	object(spec.KindFilesystem, "www", "/mounts/web/www", spec.FilesystemRecord{})
	r.declare("web", func(m *spec.MachineRecord) {
		m.Machine.Storage = []spec.Attachment{{Volume: "data"}, {Filesystem: "www", Path: "/srv"}}
	})
	r.start()
	r.awaitState("web", spec.MachineRunning)
	disks := func() (names []string) {
		inst, _ := r.fake.Get("web")
		for _, c := range r.fake.Diff(containerbroker.Machine{Name: "web"}, inst) {
			if disk, is := containerbroker.DiskOf(c.Field); is {
				names = append(names, disk)
			}
		}
		slices.Sort(names)
		return names
	}
	if got := disks(); !slices.Equal(got, []string{"fs-www", "vol-data"}) {
		t.Fatalf("it has %v", got)
	}
	r.fake.Fail(brokertest.Update, "web", 1, errors.New("no answer"))
	r.remove("web")
	r.eventually("a refused removal that is told", func() bool {
		s, there := r.status("web")
		return there && s.State == spec.MachineDying && strings.Contains(s.Message, "no answer")
	})
	r.awaitGone("web")
	inst, there := r.fake.Get("web")
	if !there || inst.Status != containerbroker.StatusRunning || inst.Stamp == nil {
		t.Errorf("there %v, %+v", there, inst)
	}
	if got := disks(); !slices.Equal(got, []string{"fs-www"}) {
		t.Errorf("it has %v", got)
	}
}

// P23, P28: an instance that is kept loses its volumes also if the driver refuses the
// declaration, whose differences then name no disk.
func TestRefusedDeclarationLeavesNoVolumes(t *testing.T) {
	for _, retain := range []bool{false, true} {
		r := newRig(t)
		r.config.Harvest = provisioner.HarvestNone
		r.attachment(spec.KindVolume, "data", map[string]string{"web": "/dev/loop1"})
		r.declare("web", storage("data"))
		r.start()
		r.awaitState("web", spec.MachineRunning)
		r.declare("web", storage("data"), func(m *spec.MachineRecord) {
			m.Machine.Retain, m.Machine.SSHKeys = retain, []string{"\x01"}
		})
		r.awaitState("web", spec.MachineError)
		r.remove("web")
		r.awaitGone("web")
		inst, there := r.fake.Get("web")
		if disks := r.disks("web"); !there || len(disks) > 0 || (inst.Stamp == nil) != retain {
			t.Errorf("retain %v: it has %v and bears %+v", retain, disks, inst.Stamp)
		}
	}
}
