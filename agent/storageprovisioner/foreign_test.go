package storageprovisioner

import (
	"testing"

	"hostler/agent/spec"
	"hostler/storage"
)

// Another program that attaches a volume too, e.g. for a backup, takes nothing
// from the machine with the volume, wherever its device is listed.
func TestDeviceOfAnotherProgram(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{})
	r.machine("db", spec.Attachment{Volume: "data"})
	r.settle()
	r.instance("db")
	v := r.host.volumes["data"]
	for _, other := range []storage.VolumeAttachment{{Device: "/dev/loop0", Foreign: true}, {Device: "/dev/loop10", ReadOnly: true, Foreign: true}} {
		v.Attachments = append([]storage.VolumeAttachment{other}, v.Attachments...)
		r.settle()
		equal(t, r.sources(), "volume/data db /dev/loop1")
		r.idle()
	}
	// A device of another program alone is none of the volume's.
	v.Attachments = v.Attachments[:2]
	l, err := r.w.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if steps := Plan(l.desired, l.observed, l.policy); len(steps) != 1 || steps[0].Action != ActionAttach {
		t.Errorf("planned: %+v", steps)
	}
}
