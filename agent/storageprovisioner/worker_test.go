package storageprovisioner

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/storage"
)

const webSources = `filesystem/logs web /state/mounts/web/logs
filesystem/scratch web /state/mounts/web/scratch
filesystem/www web /state/mounts/web/www
volume/raw web /dev/loop2`

// S4, S10, S12, S13, S17, S20, S31, S33: everything is created and attached in
// one pass, in the order of a batch, and the machine's attachments have their
// sources; the next plan is empty.
func TestEverythingIsAttached(t *testing.T) {
	r := newRig(t)
	r.web()
	if next := r.pass(); !next.IsZero() {
		t.Errorf("wants to look again at %v", next)
	}
	equal(t, r.sources(), webSources)
	var did []string
	for i, call := range r.host.did() {
		// Sources are called in parallel: only the items within a call have an
		// order.
		if word, _, _ := strings.Cut(call, "/"); i == 0 || did[len(did)-1] != word {
			did = append(did, word)
		}
	}
	equal(t, strings.Join(did, ", "), "create volume, create filesystem, attach volume, attach filesystem, create filesystem, show , attach filesystem, show ")
	calls := len(r.host.calls)
	r.instance("web")
	r.pass()
	if len(r.host.calls) != calls {
		t.Errorf("the second pass did %v", r.host.calls[calls:])
	}
	view := r.host.views["/state/mounts/web/logs"]
	if !view.ReadOnly || !view.Mapped || r.host.views["/state/mounts/web/www"].ReadOnly {
		t.Errorf("%+v", r.host.views)
	}
}

// S25: the exact sequences of states.
func TestStates(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	r.instance("web")
	r.life(spec.KindMachine, "web", state.Dying)
	for _, kind := range []string{spec.KindVolume, spec.KindFilesystem} {
		for _, name := range []string{"data", "raw", "www", "scratch", "logs"} {
			r.life(kind, name, state.Dying)
		}
	}
	r.pass()
	r.gone("web")
	r.pass()
	for key, want := range map[string]string{
		"volume/data":            "creating attaching attached detaching destroying",
		"volume/raw":             "creating attaching attached detaching destroying",
		"volume/raw web":         "pending attached",
		"filesystem/www":         "pending creating attaching attached detaching destroying",
		"filesystem/scratch":     "creating attaching attached detaching destroying",
		"filesystem/www web":     "pending attaching attached detaching",
		"filesystem/scratch web": "pending attaching attached detaching",
	} {
		if got := r.states(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	if len(r.store.objects) > 0 || r.host.state() != "" {
		t.Errorf("left over: %v\n%s", r.store.objects, r.host.state())
	}
	for _, e := range r.store.events {
		if e.Level != state.LevelInfo {
			t.Errorf("%+v", e)
		}
	}
}

// S11: without a machine, a declared volume is created and not attached; a
// filesystem's volume is attached only for its creation.
func TestWithoutMachines(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{})
	r.filesystem("www", spec.Filesystem{Volume: "data"})
	r.pass()
	equal(t, r.host.state(), "filesystem www 1073741824 false\nvolume data 1073741824 false")
	equal(t, r.states("volume/data"), "creating attaching attached detaching detached")
	equal(t, r.states("filesystem/www"), "pending creating detached")
}

// S19, S34, S36: the exact delays of ten attempts, kept across restarts of the
// agent, with the state of S18 meanwhile, for volumes and filesystems.
func TestScheduleOfTenAttempts(t *testing.T) {
	unused := func(r *rig, _ state.ID) { r.gone("web") }
	undeclared := func(r *rig, id state.ID) {
		r.gone("web")
		r.life(id.Kind, id.Name, state.Dying)
	}
	volume, filesystem := state.ID{Kind: spec.KindVolume, Name: "data"}, state.ID{Kind: spec.KindFilesystem, Name: "scratch"}
	for _, c := range []struct {
		do      string
		id      state.ID
		state   string
		prepare func(*rig, state.ID)
	}{
		{do: "create", id: volume, state: "pending"},
		{do: "attach", id: volume, state: "attaching"},
		{do: "detach", id: volume, state: "detaching", prepare: unused},
		{do: "destroy", id: volume, state: "destroying", prepare: undeclared},
		{do: "create", id: filesystem, state: "pending"},
		{do: "attach", id: filesystem, state: "attaching"},
		{do: "detach", id: filesystem, state: "detaching", prepare: unused},
		{do: "destroy", id: filesystem, state: "destroying", prepare: undeclared},
	} {
		call := c.do + " " + c.id.Kind + "/" + c.id.Name
		t.Run(call, func(t *testing.T) {
			r := newRig(t)
			if c.id == volume {
				r.volume("data", spec.Volume{})
				r.machine("web", spec.Attachment{Volume: "data"})
			} else {
				r.filesystem("scratch", spec.Filesystem{Provider: "tmpfs"})
				r.machine("web", spec.Attachment{Filesystem: "scratch", Path: "/scratch"})
			}
			if c.prepare != nil {
				r.pass()
				c.prepare(r, c.id)
			}
			r.host.fails[call] = errors.New("no luck")
			var waits []string
			for attempt := 1; attempt <= 10; attempt++ {
				next := r.pass()
				s := r.status(c.id.Kind, c.id.Name)
				if s.Attempts.Count != attempt || !next.Equal(*s.Attempts.NextRetry) || string(s.State) != c.state || s.Message != "no luck" {
					t.Fatalf("attempt %d, next at %v: %+v", attempt, next, s)
				}
				waits = append(waits, next.Sub(r.now).String())
				calls := len(r.host.calls)
				r.now = next.Add(-1)
				if attempt%3 == 0 {
					r.restart() // the schedule is in the store
				}
				for range 2 { // Z19: a further pass is harmless
					if again := r.pass(); !again.Equal(next) || len(r.host.calls) != calls {
						t.Fatalf("tried too early: %v, at %v", r.host.calls[calls:], again)
					}
				}
				r.now = next
			}
			equal(t, strings.Join(waits, " "), "30s 1m0s 2m0s 4m0s 8m0s 16m0s 30m0s 30m0s 30m0s 30m0s")
			delete(r.host.fails, call)
			r.pass()
			if c.state == "destroying" {
				if len(r.store.objects) != 0 {
					t.Error("it is still there")
				}
				return
			}
			if s := r.status(c.id.Kind, c.id.Name); s.Attempts.Count != 0 || s.Message != "" || failedAction(s) != "" {
				t.Errorf("after the success: %+v", s)
			}
		})
	}
}

// F22: a retry that was scheduled by a clock that ran ahead is made once the
// clock is right, not a year later; a retry that is due soon is waited for.
func TestRetriesOfAClockThatRanAhead(t *testing.T) {
	for _, call := range []string{"create filesystem/logs", "show /state/mounts/web/logs"} {
		for back, want := range map[time.Duration]bool{0: false, time.Minute: true, 365 * 24 * time.Hour: true} {
			r := newRig(t)
			r.filesystem("logs", spec.Filesystem{Provider: "rootfs"})
			r.machine("web", spec.Attachment{Filesystem: "logs", Path: "/log"})
			r.host.fails[call] = errors.New("no luck")
			r.pass()
			delete(r.host.fails, call)
			r.restart()
			r.now = r.now.Add(-back)
			r.pass()
			if done := r.status(spec.KindFilesystem, "logs").Attachments["web"].State == spec.StorageAttached; done != want {
				t.Errorf("%s, clock set back by %s: tried again %v", call, back, done)
			}
		}
	}
}

// S16: an invalid item does not delay other items and is not retried unchanged.
func TestInvalidItem(t *testing.T) {
	r := newRig(t)
	r.volume("bad", spec.Volume{Size: spec.GiB + 1})
	r.volume("good", spec.Volume{})
	if next := r.pass(); !next.IsZero() {
		t.Errorf("an invalid item is tried again at %v", next)
	}
	if s := r.status(spec.KindVolume, "bad"); s.State != spec.StorageError || s.Message != "an odd size" {
		t.Errorf("%+v", s)
	}
	if s := r.status(spec.KindVolume, "good"); s.State != spec.StorageDetached {
		t.Errorf("%+v", s)
	}
	r.volume("bad", spec.Volume{})
	r.pass()
	if s := r.status(spec.KindVolume, "bad"); s.State != spec.StorageDetached || s.Message != "" {
		t.Errorf("after its correction: %+v", s)
	}
	// Destroy does not validate.
	r.volume("good", spec.Volume{Size: spec.GiB + 1})
	r.life(spec.KindVolume, "good", state.Dying)
	r.pass()
	if _, there := r.host.volumes["good"]; there {
		t.Error("not destroyed")
	}
}

// A failed action of an entity does not delay the others: a volume that cannot
// grow is still attached after a reboot.
func TestFailuresAreOfTheirAction(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	r.volume("raw", spec.Volume{Size: 2 * spec.GiB, Allocation: spec.AllocationSparse})
	r.host.fails["grow volume/raw"] = errors.New("no space")
	r.pass()
	r.host.reboot()
	r.restart()
	r.pass()
	s := r.status(spec.KindVolume, "raw")
	if s.Device == "" || s.Attachments["web"].Source == "" || s.Message != "no space" || s.Attempts.Count != 1 {
		t.Errorf("%+v", s)
	}
}

// S22: an entity that is removed before it was created is forgotten. No list shows
// what a creation that was cut short left, so that is removed unseen.
func TestDyingBeforeItIsMade(t *testing.T) {
	r := newRig(t)
	r.host.fails["create volume/data"] = errors.New("no space")
	r.volume("data", spec.Volume{})
	r.pass()
	r.life(spec.KindVolume, "data", state.Dying)
	r.pass()
	if len(r.store.objects) != 0 || !slices.Contains(r.host.did(), "destroy volume/data") {
		t.Errorf("%v %v", r.store.objects, r.host.did())
	}
}

// S23: a machine's storage stays until its instance is removed; an entity that
// was never attached is only forgotten.
func TestDetachWaitsForTheMachine(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	r.instance("web")
	before := r.host.state()
	r.machine("web", webStorage[0]) // the machine releases the others
	r.pass()
	equal(t, r.host.state(), before)
	equal(t, r.sources(), `filesystem/logs web 
filesystem/scratch web 
filesystem/www web /state/mounts/web/www
volume/raw web `)
	if s := r.status(spec.KindVolume, "raw"); s.Attachments["web"].State != spec.StorageDetaching || s.State != spec.StorageDetaching ||
		s.Message != "waiting for machine/web to detach" {
		t.Errorf("%+v", s)
	}
	r.instance("web") // its provisioner detached the devices
	r.pass()
	equal(t, r.host.state(), `filesystem logs 1073741824 false
filesystem scratch 1073741824 false
filesystem www 1073741824 true
view /state/mounts/web/www false true
volume data 1073741824 true
volume raw 1073741824 false`)
}

// S24: attachments lost in a reboot are made again, and no machine gets an old
// source meanwhile, not even from an agent that has only run Prepare.
func TestReboot(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	r.instance("web")
	before := r.host.state()
	r.host.reboot()
	r.restart()
	if err := r.w.Prepare(context.Background()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.sources(), "/dev/") || strings.Contains(r.sources(), "/state/") {
		t.Errorf("machines may use what is not there:\n%s", r.sources())
	}
	calls := len(r.host.calls)
	r.pass()
	equal(t, r.host.state(), before)
	for _, call := range r.host.calls[calls:] {
		if !strings.HasPrefix(call, "attach ") && !strings.HasPrefix(call, "show ") {
			t.Errorf("did %s", call)
		}
	}
	calls = len(r.host.calls)
	r.pass()
	r.restart()
	r.pass()
	if len(r.host.calls) != calls {
		t.Errorf("not once: %v", r.host.calls[calls:])
	}
}

// A source that cannot be listed affects only its own entities: nothing there
// is created or removed, and after a start no machine gets it as a source.
func TestBlindSource(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	r.instance("web")
	before := r.sources()
	r.host.blind["loop"] = errors.New("no kernel")
	r.filesystem("more", spec.Filesystem{Provider: "tmpfs"})
	calls := len(r.host.calls)
	r.pass()
	equal(t, strings.Join(r.host.calls[calls:], "\n"), "create filesystem/more")
	equal(t, r.sources(), before)
	if s := r.status(spec.KindVolume, "raw"); !strings.Contains(s.Message, "no kernel") {
		t.Errorf("%+v", s)
	}
	r.restart()
	if err := r.w.Prepare(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := r.status(spec.KindVolume, "raw"); s.Attachments["web"].Source != "" {
		t.Errorf("%+v", s)
	}
	if s := r.status(spec.KindFilesystem, "www"); s.Attachments["web"].Source == "" {
		t.Errorf("what can be seen is there: %+v", s)
	}
}

// If the host cannot be looked at when the agent starts, nothing is offered.
func TestNothingIsOfferedUnseen(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	r.put(state.ID{Kind: spec.KindHost, Name: spec.HostName}, "no record", state.Alive)
	r.restart()
	if err := r.w.Prepare(t.Context()); err == nil || strings.Contains(r.sources(), "/dev") || strings.Contains(r.sources(), "/state") {
		t.Errorf("%v\n%s", err, r.sources())
	}
}

func TestRetain(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{Retain: true})
	r.filesystem("www", spec.Filesystem{Volume: "data"})
	r.pass()
	r.life(spec.KindVolume, "data", state.Dying)
	r.life(spec.KindFilesystem, "www", state.Dying)
	r.pass()
	equal(t, r.host.state(), "volume data 1073741824 false")
	if len(r.store.objects) != 0 {
		t.Errorf("%v", r.store.objects)
	}
	if e := r.store.events[len(r.store.events)-1]; e.Reason != "Released" || !strings.Contains(e.Message, "/state/volumes/data.img") {
		t.Errorf("%+v", e)
	}
	// Declared again, the volume has its data back.
	r.volume("data", spec.Volume{Size: 2 * spec.GiB})
	r.pass()
	s := r.status(spec.KindVolume, "data")
	if s.StampUID != "uid-1" || s.Size != int64(2*spec.GiB) || slices.Contains(r.host.did()[4:], "create volume/data") {
		t.Errorf("%+v\n%v", s, r.host.did())
	}
	r.life(spec.KindVolume, "data", state.Dying)
	r.pass()
	equal(t, r.host.state(), "")
}

func TestGrowAndShrink(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	r.instance("web")
	r.volume("data", spec.Volume{Size: 2 * spec.GiB})
	r.filesystem("scratch", spec.Filesystem{Provider: "tmpfs", Size: 2 * spec.GiB})
	r.pass()
	for _, size := range []int64{r.host.volumes["data"].Size, r.host.filesystems["www"].Size, r.host.filesystems["scratch"].Size} {
		if size != int64(2*spec.GiB) {
			t.Errorf("%s", r.host.state())
		}
	}
	r.volume("data", spec.Volume{Size: spec.GiB})
	r.pass()
	s := r.status(spec.KindVolume, "data")
	if s.State != spec.StorageAttached || !strings.Contains(s.Message, "cannot shrink to 1 GiB") || r.host.volumes["data"].Size != int64(2*spec.GiB) {
		t.Errorf("%+v", s)
	}
}

// Data that is lost without our doing is not replaced by an empty object behind
// its users' backs.
func TestLostData(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{})
	r.pass()
	delete(r.host.volumes, "data")
	r.pass()
	if s := r.status(spec.KindVolume, "data"); s.State != spec.StorageError || !strings.Contains(s.Message, "hostler retry volume/data") {
		t.Errorf("%+v", s)
	}
	// No other change of the record is a request for an empty volume.
	for _, h := range []spec.Header{{Declaration: "other"}, {Held: spec.HoldRemoval}, {}} {
		r.put(state.ID{Kind: spec.KindVolume, Name: "data"}, spec.VolumeRecord{Volume: spec.Volume{Provider: "loop", Size: 2 * spec.GiB}, Header: h}, state.Alive)
		r.pass()
		if s := r.status(spec.KindVolume, "data"); s.State != spec.StorageError || r.host.volumes["data"] != nil {
			t.Fatalf("after %+v: %+v", h, s)
		}
	}
	r.put(state.ID{Kind: spec.KindVolume, Name: "data"}, spec.VolumeRecord{Volume: spec.Volume{Provider: "loop", Size: spec.GiB}, Header: spec.Header{RetryRequest: 1}}, state.Alive)
	r.pass()
	if s := r.status(spec.KindVolume, "data"); s.State != spec.StorageDetached {
		t.Errorf("%+v", s)
	}
}

// W10: the filesystem of a volume that was created again is lost too: the error
// names the command that makes it again, and that command works once.
func TestLostDataOfAFilesystem(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	r.instance("web")
	r.host.reboot()
	delete(r.host.volumes, "data")
	r.host.gone["www"] = true
	r.pass()
	r.put(state.ID{Kind: spec.KindVolume, Name: "data"}, spec.VolumeRecord{Volume: spec.Volume{Provider: "loop", Size: spec.GiB}, Header: spec.Header{RetryRequest: 1}}, state.Alive)
	r.pass()
	const said = "its data is gone from volume/data; `hostler retry filesystem/www` makes it again, empty"
	for range 2 {
		if s := r.status(spec.KindFilesystem, "www"); s.State != spec.StorageError || s.Message != said {
			t.Fatalf("%+v", s)
		}
		r.now = r.now.Add(time.Hour) // an automatic retry does not create it
		r.pass()
	}
	r.put(state.ID{Kind: spec.KindFilesystem, Name: "www"}, spec.FilesystemRecord{Filesystem: spec.Filesystem{Volume: "data"}, Header: spec.Header{RetryRequest: 1}}, state.Alive)
	r.pass()
	if s := r.status(spec.KindFilesystem, "www"); s.State != spec.StorageAttached || r.host.gone["www"] {
		t.Errorf("%+v", s)
	}
}

// F16: an interrupted creation continues, even if the filesystem was complete
// before.
func TestInterruptedMakingAnew(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	r.host.reboot()
	r.host.filesystems["www"].Problem, r.host.filesystems["www"].Unmade = "its creation was interrupted", true
	r.pass()
	if s := r.status(spec.KindFilesystem, "www"); s.State != spec.StorageAttached {
		t.Errorf("%+v", s)
	}
}

// S31: changed options of a mounted filesystem are shown, with the machines
// that use it, until the next mount; another order of the options is no change.
func TestOtherMountOptions(t *testing.T) {
	r := newRig(t)
	r.web()
	told := func() spec.Condition {
		r.pass()
		all := r.status(spec.KindFilesystem, "www").Conditions
		return all[slices.IndexFunc(all, func(c spec.Condition) bool { return c.Type == conditionUpToDate })]
	}
	r.filesystem("www", spec.Filesystem{Volume: "data", MountOptions: []string{"noatime", "nodev"}})
	if c := told(); !c.Status {
		t.Fatalf("%+v", c)
	}
	r.instance("web")
	r.filesystem("www", spec.Filesystem{Volume: "data", MountOptions: []string{"nodev", "noatime"}})
	if c := told(); !c.Status {
		t.Errorf("%+v", c)
	}
	r.filesystem("www", spec.Filesystem{Volume: "data", MountOptions: []string{"nosuid"}})
	const said = "it is mounted with [noatime, nodev], and has [nosuid] when it is mounted next: detach it from its machines and attach it again, or restart the host"
	if c := told(); c.Status || c.Message != said {
		t.Errorf("%+v", c)
	}
	if s := r.status(spec.KindFilesystem, "www"); s.State != spec.StorageAttached || s.Message != said {
		t.Errorf("%+v", s)
	}
	r.machine("web", webStorage[1:]...)
	r.pass()
	r.instance("web")
	r.pass()
	r.machine("web", webStorage...)
	if c := told(); !c.Status || r.host.filesystems["www"].Options[0] != "nosuid" {
		t.Errorf("%+v %v", c, r.host.filesystems["www"].Options)
	}
}

// F12: while machines without a record may exist, no storage that they may use
// is detached or removed.
func TestUnfoundMachines(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	before := r.host.state()
	lost := spec.HostRecord{Config: spec.Config{Namespace: "test", Harvest: "destroyed"}}
	lost.Recovery.Begin([]spec.ContainerType{spec.LXD})
	lost.Recovery.Done(spec.ScanStorage)
	r.put(state.ID{Kind: spec.KindHost, Name: spec.HostName}, lost, state.Alive)
	for id := range r.store.objects {
		if id.Kind == spec.KindMachine {
			delete(r.store.objects, id)
		} else if id.Kind != spec.KindHost {
			r.life(id.Kind, id.Name, state.Dying)
		}
	}
	calls := len(r.host.calls)
	r.pass()
	equal(t, r.host.state(), before)
	if len(r.host.calls) != calls {
		t.Errorf("done: %v", r.host.calls[calls:])
	}
	if s := r.status(spec.KindVolume, "raw"); !strings.Contains(s.Message, "waiting for lxd") {
		t.Errorf("%+v", s)
	}
	lost.Recovery.Done("lxd")
	r.put(state.ID{Kind: spec.KindHost, Name: spec.HostName}, lost, state.Alive)
	r.pass()
	equal(t, r.host.state(), "")
}

// A hypervisor that starts late is awaited before the records are read.
func TestALateHypervisorIsAwaited(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	before := r.host.state()
	lost := spec.HostRecord{Config: spec.Config{Namespace: "test", Harvest: "destroyed"}}
	lost.Recovery.Begin([]spec.ContainerType{spec.LXD})
	lost.Recovery.Done(spec.ScanStorage)
	lost.Recovery.Drop("lxd")
	lost.Recovery.End("new")
	host := state.ID{Kind: spec.KindHost, Name: spec.HostName}
	r.put(host, lost, state.Alive)
	r.gone("web")
	r.w.Await = func(context.Context) error {
		lost.Recovery.Await("lxd")
		r.put(host, lost, state.Alive)
		return nil
	}
	r.pass()
	equal(t, r.host.state(), before)
	lost.Recovery.Done("lxd")
	r.pass()
	if r.host.state() == before {
		t.Error("storage still waits after the scan")
	}
}

// Harvest modes that leave instances also leave their storage.
func TestLeave(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	before := r.host.state()
	r.put(state.ID{Kind: spec.KindHost, Name: spec.HostName}, spec.HostRecord{Config: spec.Config{Namespace: "test", Harvest: "none"}}, state.Alive)
	for id := range r.store.objects {
		r.life(id.Kind, id.Name, state.Dying)
	}
	r.gone("web")
	r.pass()
	equal(t, r.host.state(), before)
	if len(r.store.objects) != 1 {
		t.Errorf("%v", r.store.objects)
	}
}

// Z24: the error of a busy entity names the holder, and the detachment is
// retried once when the holder has ended, not repeatedly.
func TestBusyDetach(t *testing.T) {
	r := newRig(t)
	ended := make(chan struct{})
	r.w.WaitHolders = func(ctx context.Context, _ []storage.Holder) error {
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.web()
	r.pass()
	r.host.fails["detach filesystem/www"] = storage.Busy("/srv", "", []storage.Holder{{PID: 7, Command: "sleep", Path: "/srv/x"}})
	r.machine("web")
	r.pass()
	s := r.status(spec.KindFilesystem, "www")
	if s.State != spec.StorageDetaching || !strings.Contains(s.Message, "sleep (pid 7) holds /srv/x") {
		t.Errorf("%+v", s)
	}
	tried := func() int {
		return len(slices.DeleteFunc(r.host.did(), func(c string) bool { return c != "detach filesystem/www" }))
	}
	for range 5 {
		r.pass()
	}
	if tried() != 1 {
		t.Errorf("tried %d times", tried())
	}
	delete(r.host.fails, "detach filesystem/www")
	r.now = r.now.Add(10 * time.Second)
	close(ended)
	r.w.Tasks.Wait()
	r.pass()
	if s := r.status(spec.KindFilesystem, "www"); s.State != spec.StorageDetached || tried() != 2 {
		t.Errorf("%+v, tried %d times", s, tried())
	}
}

// Z19, S19: an event about a failed step causes an early retry, but bursts of
// events and the worker's own changes do not.
func TestEarlyWake(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{})
	r.machine("web", spec.Attachment{Volume: "data"})
	r.host.fails["attach volume/data"] = fault.New(fault.Transient, "no free loop device")
	r.pass()
	tried := func() int { return len(r.host.did()) }
	at := tried()
	r.w.devices = true
	r.pass()
	if tried() != at {
		t.Error("tried again at once, by what may have been its own doing")
	}
	// The event is remembered during the pause.
	r.now = r.now.Add(leastWait)
	r.pass()
	if tried() != at+1 {
		t.Errorf("not woken: %v", r.host.did())
	}
	r.pass()
	if s := r.status(spec.KindVolume, "data"); tried() != at+1 || s.Attempts.Count != 2 {
		t.Errorf("%v, %+v", r.host.did(), s)
	}
	delete(r.host.fails, "attach volume/data")
	r.now = r.now.Add(leastWait)
	r.w.devices = true
	r.pass()
	if tried() != at+1 {
		t.Errorf("tried again before it had rested: %v", r.host.did())
	}
	r.now = r.now.Add(leastWait)
	r.pass()
	if s := r.status(spec.KindVolume, "data"); s.State != spec.StorageAttached {
		t.Errorf("%+v", s)
	}
}

// An unreadable record stops every pass until it is readable, and nothing
// changes meanwhile.
func TestUnreadableRecord(t *testing.T) {
	r := newRig(t)
	r.web()
	r.pass()
	id := state.ID{Kind: spec.KindMachine, Name: "web"}
	whole := r.store.objects[id].Spec
	for _, broken := range []string{`{"machine":`, `[]`} {
		o := r.store.objects[id]
		o.Spec = json.RawMessage(broken)
		r.store.revised(o)
		calls := len(r.host.calls)
		for look := range 3 {
			if _, err := r.w.converge(t.Context()); err == nil || !strings.Contains(err.Error(), "machine/web") {
				t.Errorf("%s, look %d: %v", broken, look, err)
			}
		}
		if len(r.host.calls) != calls {
			t.Errorf("%s: %v", broken, r.host.calls[calls:])
		}
	}
	r.store.objects[id].Spec = whole
	r.store.revised(r.store.objects[id])
	r.pass()
	equal(t, r.sources(), webSources)
}
