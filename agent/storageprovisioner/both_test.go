package storageprovisioner

import (
	"strings"
	"testing"

	"hostler/agent/spec"
)

// A volume under a filesystem is never a machine's block device, in any order
// of the records: mounts and attachments that do not exist yet are not made,
// and both statuses name the other object. Existing ones stay until either is
// removed.
// Attack: guests
func TestNoVolumeIsDeviceAndUnderFilesystem(t *testing.T) {
	www := spec.Attachment{Filesystem: "www", Path: "/srv"}
	const names = "machine/db has volume/data as a block device and filesystem/www is made on it"
	for name, c := range map[string]struct {
		first, second func(*rig)
		// sources are the final attachments of the machines.
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

// A mount that an earlier version made without restrictions is attached again
// at its place, without other steps.
func TestMountsAreRestrictedWhereTheyAre(t *testing.T) {
	r := newRig(t)
	r.web()
	r.settle()
	r.instance("web")
	l, err := r.w.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for source, all := range l.observed.Filesystems {
		for i, f := range all {
			l.observed.Filesystems[source][i].Attachments[0].Unrestricted = f.ID != "scratch"
		}
	}
	var steps []string
	for _, s := range Plan(l.desired, l.observed, l.policy) {
		if s.due(l.policy.Now) {
			steps = append(steps, string(s.Action)+" "+s.Kind+"/"+s.Name)
		}
	}
	equal(t, strings.Join(steps, ", "), "attach filesystem/logs, attach filesystem/www")
}

// A machine's view allows setuid programs, and a privileged machine's also
// devices, unless the declaration forbids it.
func TestViewsOfMachines(t *testing.T) {
	for name, c := range map[string]struct {
		options         []string
		privileged      bool
		setuid, devices bool
	}{
		"a container":                     {nil, false, true, false},
		"a privileged one":                {[]string{"noatime"}, true, true, true},
		"nosuid and nodev are declared":   {[]string{"nosuid", "nodev"}, true, false, false},
		"nosuid is declared":              {[]string{"nosuid"}, false, false, false},
		"nodev is declared, without need": {[]string{"nodev"}, false, true, false},
	} {
		e := Entity{Kind: spec.KindFilesystem, Name: "www", Filesystem: spec.Filesystem{Provider: "tmpfs", MountOptions: c.options}}
		p := newPlanner(Desired{Entities: []Entity{e}, Machines: []Machine{{Name: "web", Privileged: c.privileged}}}, Observed{}, Policy{})
		if p := p.view(&e, "web", spec.Attachment{}); p.Setuid != c.setuid || p.Devices != c.devices {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
