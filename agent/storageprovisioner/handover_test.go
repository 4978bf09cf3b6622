package storageprovisioner

import (
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// P19, S23: what one machine at a time may have is given to the next when the
// one before has let it go: two that write to a volume destroy it.
func TestHandover(t *testing.T) {
	volume, reads := spec.Attachment{Volume: "data"}, spec.Attachment{Volume: "data", ReadOnly: true}
	www := spec.Attachment{Filesystem: "www", Path: "/srv"}
	is := func(f spec.Filesystem) func(*rig) { return func(r *rig) { r.filesystem("www", f) } }
	nothing, onVolume := func(*rig) {}, is(spec.Filesystem{Volume: "data"})
	const letGo = "waiting for machine/a to let go"
	for name, c := range map[string]struct {
		before   func(*rig)
		from, to spec.Attachment
		after    func(*rig)
		message  string // what b is told meanwhile; "": it has it at once
	}{
		"a volume":                      {nothing, volume, volume, nothing, letGo},
		"a volume that was read":        {nothing, reads, volume, nothing, letGo},
		"a volume that is only read":    {nothing, reads, reads, nothing, ""},
		"a filesystem on a volume":      {onVolume, www, www, nothing, letGo},
		"a filesystem":                  {is(spec.Filesystem{Provider: "tmpfs"}), www, www, nothing, letGo},
		"a shared filesystem":           {is(spec.Filesystem{Provider: "rootfs", Shared: true}), www, www, nothing, ""},
		"what was below a filesystem":   {onVolume, www, volume, func(r *rig) { r.life(spec.KindFilesystem, "www", state.Dying) }, "waiting for filesystem/www to be unmounted"},
		"what is below one from now on": {nothing, volume, www, onVolume, "waiting for its mount on the host"},
	} {
		for how, ends := range map[string]bool{"of a machine that goes on": false, "of a machine that ends": true} {
			t.Run(name+" "+how, func(t *testing.T) {
				r := newRig(t)
				r.volume("data", spec.Volume{})
				c.before(r)
				r.machine("a", c.from)
				r.pass()
				r.instance("a")
				if c.after(r); ends {
					r.life(spec.KindMachine, "a", state.Dying)
				} else {
					r.machine("a")
				}
				r.machine("b", c.to)
				given := func() spec.AttachmentStatus {
					r.pass()
					if c.to.Volume != "" {
						return r.status(spec.KindVolume, "data").Attachments["b"]
					}
					return r.status(spec.KindFilesystem, "www").Attachments["b"]
				}
				if b := given(); b.Message != c.message || (b.Source == "") != (c.message != "") {
					t.Errorf("while a has it, b is given %+v", b)
				}
				if ends {
					r.gone("a")
				} else {
					r.instance("a")
				}
				if b := given(); b.State != spec.StorageAttached || b.Source == "" {
					t.Errorf("when a has let it go, b is given %+v\n%s", b, r.host.state())
				}
				r.settle()
				r.idle()
			})
		}
	}
}

// Two machines that are given each other's volumes have them when both have
// let go, in whatever order.
func TestSwap(t *testing.T) {
	r := newRig(t)
	r.volume("one", spec.Volume{})
	r.volume("two", spec.Volume{})
	r.machine("a", spec.Attachment{Volume: "one"})
	r.machine("b", spec.Attachment{Volume: "two"})
	r.pass()
	r.instance("a")
	r.instance("b")
	r.machine("a", spec.Attachment{Volume: "two"})
	r.machine("b", spec.Attachment{Volume: "one"})
	r.pass()
	equal(t, r.sources(), "volume/one a \nvolume/one b \nvolume/two a \nvolume/two b ")
	r.instance("a")
	r.pass()
	equal(t, r.sources(), "volume/one b /dev/loop1\nvolume/two a \nvolume/two b ")
	r.instance("b")
	r.pass()
	equal(t, r.sources(), "volume/one b /dev/loop1\nvolume/two a /dev/loop2")
}

// What is not shared any more is not taken from the one that shall have it.
func TestNotSharedAnyMore(t *testing.T) {
	r := newRig(t)
	www := spec.Attachment{Filesystem: "www", Path: "/srv"}
	r.filesystem("www", spec.Filesystem{Provider: "rootfs", Shared: true})
	r.machine("a", www)
	r.machine("b", www)
	r.pass()
	r.instance("a")
	r.instance("b")
	r.filesystem("www", spec.Filesystem{Provider: "rootfs"})
	r.machine("a")
	r.pass()
	equal(t, r.sources(), "filesystem/www a \nfilesystem/www b /state/mounts/b/www")
}
