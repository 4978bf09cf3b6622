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

// P23: an instance that outlives its record keeps running without its volumes,
// because the kernel may reuse their device numbers for other volumes. If the
// volumes cannot be detached, the record stays and says why.
func TestLeftInstanceHasNoVolumes(t *testing.T) {
	r := newRig(t)
	r.config.Harvest = provisioner.HarvestNone
	given := func(kind, name, source string, record any) {
		r.write(state.Write{
			ID: state.ID{Kind: kind, Name: name}, Spec: spec.Encode(record), Life: state.Alive,
			Status: spec.Encode(spec.StorageStatus{Attachments: map[string]spec.AttachmentStatus{"web": {State: spec.StorageAttached, Source: source}}}),
		})
	}
	given(spec.KindVolume, "data", "/dev/loop7", spec.VolumeRecord{})
	given(spec.KindFilesystem, "www", "/mounts/web/www", spec.FilesystemRecord{})
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
