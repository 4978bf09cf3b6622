package storageprovisioner

import (
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/storage"
)

// An operator replaces the data of a volume that a machine uses, e.g. by those of
// a backup. The machine keeps the former data while it runs, and has the present
// ones from its next start.
func TestReplacedVolume(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{})
	r.machine("db", spec.Attachment{Volume: "data"})
	r.settle()
	r.instance("db")
	r.settle()
	v := r.host.volumes["data"]
	v.Attachments[0].Former, v.Problem = true, "it has been cut"
	calls := len(r.host.did())
	r.settle()
	v.Problem = ""
	r.settle()
	if did := r.host.did()[calls:]; len(did) > 0 {
		t.Errorf("while the machine runs: %v", did)
	}
	s := r.status(spec.KindVolume, "data")
	for _, message := range []string{s.Message, s.Attachments["db"].Message} {
		if !strings.Contains(message, "machine/db to be stopped, since the volume's file was replaced") {
			t.Errorf("it says %q", message)
		}
	}
	o := r.store.objects[state.ID{Kind: spec.KindMachine, Name: "db"}]
	o.Status = spec.Encode(spec.MachineStatus{
		State: spec.MachineStopped, Instance: &spec.InstanceInfo{Name: "db"}, ObservedGeneration: o.Generation, Uses: []string{},
	})
	r.store.revised(o)
	r.letGo("db")
	r.settle()
	equal(t, strings.Join(r.host.did()[calls:], ", "), "detach volume/data, attach volume/data")
	equal(t, r.sources(), "volume/data db /dev/loop2")
}

// A filesystem that is not mounted waits for the device with the present data.
func TestFilesystemOnAReplacedVolume(t *testing.T) {
	p := &planner{
		volumes:     map[string]*Entity{"data": {Life: state.Alive}},
		volumesSeen: map[string]*storage.Volume{"data": {Attachments: []storage.VolumeAttachment{{Device: "/dev/loop1", Former: true}}}},
	}
	e := &Entity{Name: "www", Filesystem: spec.Filesystem{Volume: "data"}}
	if path, waiting := p.deviceOf(e); path != "" || waiting != "volume/data to be attached again" {
		t.Errorf("it has %q and waits for %q", path, waiting)
	}
}
