package storageprovisioner

import (
	"strings"
	"testing"

	"hostler/agent/spec"
)

// A volume under a filesystem is no machine's block device, in whatever order
// the records come: what is not mounted or given yet never is, and the status
// of both names the other place. What was done before stays until one goes.
func TestNoVolumeIsDeviceAndUnderFilesystem(t *testing.T) {
	www := spec.Attachment{Filesystem: "www", Path: "/srv"}
	const names = "machine/db has volume/data as a block device and filesystem/www is made on it"
	for name, c := range map[string]struct {
		first, second func(*rig)
		// sources are what machines are given in the end.
		sources string
	}{
		"both at once": {
			func(*rig) {}, func(r *rig) {
				r.filesystem("www", spec.Filesystem{Volume: "data"})
				r.machine("web", www)
				r.machine("db", spec.Attachment{Volume: "data"})
			}, "filesystem/www web \nvolume/data db ",
		},
		"the filesystem first": {
			func(r *rig) {
				r.filesystem("www", spec.Filesystem{Volume: "data"})
				r.machine("web", www)
			}, func(r *rig) { r.machine("db", spec.Attachment{Volume: "data", ReadOnly: true}) },
			"filesystem/www web /state/mounts/web/www\nvolume/data db ",
		},
		"the device first": {
			func(r *rig) { r.machine("db", spec.Attachment{Volume: "data"}) },
			func(r *rig) {
				r.filesystem("www", spec.Filesystem{Volume: "data", Wipe: true})
				r.machine("web", www)
			}, "filesystem/www web \nvolume/data db /dev/loop1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.volume("data", spec.Volume{})
			c.first(r)
			r.settle()
			c.second(r)
			r.settle()
			equal(t, r.sources(), c.sources)
			given := r.status(spec.KindVolume, "data").Attachments["db"]
			fs := r.status(spec.KindFilesystem, "www")
			if given.Source == "" && (given.State != spec.StorageError || !strings.Contains(given.Message, names)) {
				t.Errorf("the machine's attachment: %+v", given)
			}
			if fs.Path == "" && (fs.State != spec.StorageError || !strings.Contains(fs.Message, names)) {
				t.Errorf("the filesystem: %+v", fs)
			}
			if given.Source != "" && fs.Path != "" {
				t.Errorf("both were given:\n%s", r.host.state())
			}
			r.machine("db")
			r.settle()
			r.idle()
			if fs := r.status(spec.KindFilesystem, "www"); fs.State != spec.StorageAttached {
				t.Errorf("without the device: %+v", fs)
			}
		})
	}
}
