package storageprovisioner

import (
	"encoding/json"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// P19, S23: an exclusive entity is given to the next machine once the previous
// machine has released it: two writers would destroy a volume.
func TestHandover(t *testing.T) {
	volume, reads := spec.Attachment{Volume: "data"}, spec.Attachment{Volume: "data", ReadOnly: true}
	www := spec.Attachment{Filesystem: "www", Path: "/srv"}
	is := func(f spec.Filesystem) func(*rig) { return func(r *rig) { r.filesystem("www", f) } }
	nothing, onVolume := func(*rig) {}, is(spec.Filesystem{Volume: "data"})
	const letGo = "waiting for machine/a to detach"
	for name, c := range map[string]struct {
		before   func(*rig)
		from, to spec.Attachment
		after    func(*rig)
		message  string // the message of b meanwhile; "": b has it at once
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

// Two machines that exchange their volumes get them once both have released
// theirs, in any order.
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

// A filesystem that is no longer shared is not taken from the machine that
// keeps it.
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

// A filesystem declared under another name is created on its volume once its
// machine has released the old name. The machine waits for the new filesystem
// meanwhile, with a status that says it has let go.
func TestFilesystemRenamed(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{})
	r.filesystem("www", spec.Filesystem{Volume: "data"})
	r.machine("web", spec.Attachment{Filesystem: "www", Path: "/srv"})
	r.pass()
	r.instance("web")
	r.life(spec.KindFilesystem, "www", state.Dying)
	r.filesystem("www2", spec.Filesystem{Volume: "data"})
	r.machine("web", spec.Attachment{Filesystem: "www2", Path: "/srv"})
	calls := len(r.host.calls)
	r.pass()
	equal(t, r.status(spec.KindFilesystem, "www2").Message, "waiting for filesystem/www to be unmounted")
	equal(t, r.status(spec.KindFilesystem, "www").Message, "waiting for machine/web to detach")
	if len(r.host.calls) != calls {
		t.Errorf("done: %v", r.host.calls[calls:])
	}
	r.lets("web", spec.MachineStatus{State: spec.MachineRunning})
	r.settle()
	equal(t, r.sources(), "filesystem/www2 web /state/mounts/web/www2")
	equal(t, strings.Join(r.host.calls[calls:], ", "), "hide /state/mounts/web/www, detach filesystem/www, "+
		"destroy filesystem/www, create filesystem/www2, attach filesystem/www2, show /state/mounts/web/www2")
}

// lets writes a status in which the machine's instance has only the storage of
// its record, besides the fields of s.
func (r *rig) lets(name string, s spec.MachineStatus) {
	o := r.store.objects[state.ID{Kind: spec.KindMachine, Name: name}]
	s.Instance, s.Uses = &spec.InstanceInfo{Name: name}, r.offered(name)
	o.Status = spec.Encode(s)
	r.store.revised(o)
	r.letGo(name)
}

// S23: a machine that has let go need not be as declared in other respects.
func TestMachinesThatHaveLetGo(t *testing.T) {
	for name, s := range map[string]spec.MachineStatus{
		"a change is held back": {State: spec.MachineRunning, Conditions: []spec.Condition{{Type: conditionUpToDate, Reason: "NeedsRestart"}}},
		"it failed":             {State: spec.MachineError, Attempts: spec.Attempts{Count: 1, ErrorKind: "needs-operator"}},
		"it waits":              {State: spec.MachineRunning},
	} {
		r := newRig(t)
		r.volume("data", spec.Volume{})
		r.machine("web", spec.Attachment{Volume: "data"})
		r.pass()
		r.instance("web")
		r.machine("web")
		r.pass()
		before := r.status(spec.KindVolume, "data")
		r.lets("web", s)
		r.pass()
		if after := r.status(spec.KindVolume, "data"); before.Device == "" || after.Device != "" {
			t.Errorf("%s: %+v", name, after)
		}
		r.machine("web", spec.Attachment{Volume: "data"})
		r.pass()
		r.lets("web", s)
		r.machine("web")
		r.pass()
		if s := r.status(spec.KindVolume, "data"); s.Device == "" {
			t.Errorf("%s: what it let go before counts for what it had since: %+v", name, s)
		}
	}
}

// machineStatus writes a machine's status as it stands in the store.
func (r *rig) machineStatus(name, status string) {
	o := r.store.objects[state.ID{Kind: spec.KindMachine, Name: name}]
	o.Status = json.RawMessage(status)
	r.store.revised(o)
}

// S23: a machine that takes storage while its offer is withdrawn is seen before
// the storage is taken away.
func TestTakenWhileWithdrawn(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{})
	r.machine("web", spec.Attachment{Volume: "data"})
	r.pass()
	r.machine("web")
	r.store.wrote = func(id state.ID) {
		if r.store.wrote = nil; id.Kind == spec.KindVolume {
			r.machineStatus("web", `{"state":"pending","uses":["volume/data"]}`)
		}
	}
	r.pass()
	if s := r.status(spec.KindVolume, "data"); s.Device == "" || s.Attachments["web"].Message != "waiting for machine/web to detach" {
		t.Errorf("it is taken away: %+v", s)
	}
	r.machineStatus("web", `{"state":"pending","uses":[]}`)
	r.settle()
	r.idle()
	if s := r.status(spec.KindVolume, "data"); s.Device != "" || len(s.Attachments) != 0 {
		t.Errorf("it is not taken away: %+v", s)
	}
}

// S23: the device of a paused instance stays, and that of an instance that
// stopped by itself can be attached in another mode.
func TestOtherModeOfStoppedMachines(t *testing.T) {
	for name, c := range map[string]struct {
		status   string
		readOnly bool // afterwards
	}{
		"paused":            {`{"state":"stopped","instance":{"name":"web"},"uses":["volume/data"],"observed-generation":9}`, false},
		"stopped by itself": {`{"state":"pending","message":"waiting to be started","instance":{"name":"web"},"uses":[],"observed-generation":9}`, true},
	} {
		r := newRig(t)
		r.volume("data", spec.Volume{})
		r.machine("web", spec.Attachment{Volume: "data"})
		r.pass()
		r.instance("web")
		r.machine("web", spec.Attachment{Volume: "data", ReadOnly: true})
		r.machineStatus("web", c.status)
		if r.letGo("web"); !c.readOnly {
			r.host.used["volume/data"] = "web"
		}
		r.pass()
		if v := r.host.volumes["data"]; len(v.Attachments) != 1 || v.Attachments[0].ReadOnly != c.readOnly {
			t.Errorf("%s: %+v", name, v.Attachments)
		}
		s := r.status(spec.KindVolume, "data")
		if held := spec.Differs(s.Conditions) && strings.Contains(s.Message, "`hostler stop web`"); held == c.readOnly {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// S23: machines of a store of an earlier version use their storage until their
// worker says otherwise.
func TestMachinesOfEarlierVersions(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	r.instance("web")
	for id, o := range r.store.objects {
		if o.Kind == spec.KindVolume || o.Kind == spec.KindFilesystem {
			r.put(id, json.RawMessage(o.Spec), state.Dying)
		}
	}
	r.machine("web")
	// Such a store has let-go and no uses. The instance was not looked at since.
	r.machineStatus("web", `{"state":"running","instance":{"name":"web"},"let-go":1,"observed-generation":1}`)
	calls := len(r.host.calls)
	r.restart()
	r.settle()
	if did := r.host.calls[calls:]; len(did) > 0 {
		t.Errorf("while it may have them: %v", did)
	}
	r.machineStatus("web", `{"state":"running","instance":{"name":"web"},"uses":[],"observed-generation":2}`)
	r.letGo("web")
	r.settle()
	if r.host.state() != "" {
		t.Errorf("afterwards\n%s", r.host.state())
	}
}

// A plan shows that a machine without an instance loses its view.
func TestWithdrawalIsPlanned(t *testing.T) {
	r := newRig(t)
	r.filesystem("www", spec.Filesystem{Provider: "tmpfs"})
	r.machine("web", spec.Attachment{Filesystem: "www", Path: "/srv"})
	r.pass()
	r.machine("web")
	l, err := r.w.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	steps := Shown(Plan(l.desired, l.observed, l.policy))
	if len(steps) != 1 || steps[0].Action != ActionHide || steps[0].Machine != "web" || steps[0].Waiting == "" {
		t.Errorf("%+v", steps)
	}
	r.pass()
	r.idle()
	equal(t, r.sources(), "")
}
