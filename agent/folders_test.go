package agent

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
	"hostler/internal/hostlock"
	"hostler/internal/paths"
)

// foldered is a host whose hypervisor has instances in the folder in use.
type foldered struct {
	*lossyHost
	use  string
	fake map[string]*brokertest.Fake
}

func newFoldered(t *testing.T) *foldered {
	t.Helper()
	f := &foldered{lossyHost: newLossyHost(t), use: "/old", fake: map[string]*brokertest.Fake{"/old": brokertest.New(), "/new": brokertest.New()}}
	f.start()
	t.Cleanup(func() { f.close() })
	return f
}

// start starts the agent, as open() of this package does.
func (f *foldered) start() {
	f.t.Helper()
	f.open()
	f.drivers = map[spec.ContainerType]constructors{spec.LXC: {
		folder: func(paths.Paths, spec.TypesConfig) string { return f.use },
		back:   func(_ paths.Paths, former string) string { return "go back to " + former },
		driver: func(*host) (driver, error) {
			if f.fake[f.use] == nil {
				return driver{}, fault.New(fault.NotReady, "there is no LXC")
			}
			return driver{Broker: f.fake[f.use]}, nil
		},
	}}
	f.former = map[spec.ContainerType]formerFolder{}
	if err := f.readFolders(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// restart starts the agent with another folder.
func (f *foldered) restart(use string) {
	f.t.Helper()
	f.close()
	f.use = use
	f.start()
}

// record writes an object.
func (f *foldered) put(kind, name string, record, status any, life state.Life) {
	f.t.Helper()
	write := state.Write{ID: state.ID{Kind: kind, Name: name}, Revision: state.AnyRevision, Spec: spec.Encode(record), Status: spec.Encode(status), Life: life}
	if _, err := f.store.Get(f.t.Context(), write.ID); fault.Is(err, fault.NotFound) {
		write.Revision = 0
	}
	if _, err := f.store.Write(f.t.Context(), state.Atomic, write); err != nil {
		f.t.Fatal(err)
	}
}

func (f *foldered) machine(name string, life state.Life, change ...func(*spec.MachineRecord)) {
	f.t.Helper()
	r := spec.MachineRecord{Machine: spec.Machine{Type: spec.LXC, Image: "debian/12"}}
	for _, c := range change {
		c(&r)
	}
	f.put(spec.KindMachine, name, r, spec.MachineStatus{Instance: &spec.InstanceInfo{Name: name, Token: "token-" + name}}, life)
}

// check looks for the folder as the type's setup does.
func (f *foldered) check() error {
	folder, err := recordedFolder(f.t.Context(), f.store, spec.LXC)
	if err == nil {
		_, err = f.checkFolder(spec.LXC)(f.t.Context(), folder)
	}
	return err
}

// A hypervisor of another folder, which does not have the instances, is not used:
// the machines would be made a second time. The error names both folders and the
// mends.
func TestMachinesAreNotMadeAgainInAnotherFolder(t *testing.T) {
	f := newFoldered(t)
	f.machine("web", state.Alive)
	f.machine("db", state.Alive)
	f.put(spec.KindContainerType, "lxc", spec.TypeRecord{}, spec.TypeStatus{State: "ready", Folder: "/old"}, state.Alive)
	for _, name := range []string{"web", "db"} {
		f.fake["/old"].Add(stamped(name, "uid-"+name, "hostler"))
	}
	for _, use := range []string{"/new", "/absent"} {
		f.restart(use)
		_, used := f.driver(spec.LXC)
		for _, err := range []error{used, f.check()} {
			if !fault.Is(err, fault.NeedsOperator) {
				t.Fatalf("%s: %v", use, err)
			}
			for _, part := range []string{"machine/db, machine/web", "/old", use, "go back to /old", "`hostler allow recreate machine/db`", "`hostler retry type/lxc`"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q is missing in: %v", use, part, err)
				}
			}
		}
	}
	f.restart("/old")
	if _, err := f.driver(spec.LXC); err != nil || f.check() != nil {
		t.Errorf("back in the folder: %v, %v", err, f.check())
	}

	// Moved with all their instances, they are used there.
	f.restart("/new")
	f.fake["/new"].Add(stamped("web", "uid-web", "hostler"))
	if err := f.check(); !fault.Is(err, fault.NeedsOperator) || strings.Contains(err.Error(), "machine/web") {
		t.Errorf("a part was moved: %v", err)
	}
	f.fake["/new"].Fail(brokertest.List, "", 1, fault.New(fault.Transient, "no answer"))
	if err := f.check(); !fault.Is(err, fault.Transient) {
		t.Errorf("without an answer: %v", err)
	}
	f.fake["/new"].Add(stamped("db", "uid-db", "hostler"))
	if err := f.check(); err != nil {
		t.Errorf("all were moved: %v", err)
	}
	if _, err := f.driver(spec.LXC); err != nil {
		t.Errorf("all were moved: %v", err)
	}
}

// A machine without an instance, one that is being removed and one that the user
// permitted to make again hold nothing up; nor does the store of an earlier
// version, which records no folder.
func TestOtherMachinesPermitAnotherFolder(t *testing.T) {
	f := newFoldered(t)
	f.put(spec.KindContainerType, "lxc", spec.TypeRecord{}, spec.TypeStatus{State: "ready", Folder: "/old"}, state.Alive)
	f.machine("gone", state.Dying)
	f.machine("again", state.Alive, func(r *spec.MachineRecord) { r.Consent([]string{string(containerbroker.ImpactRecreate)}) })
	f.machine("other", state.Alive, func(r *spec.MachineRecord) { r.Machine.Type = spec.LXD })
	f.put(spec.KindMachine, "fresh", spec.MachineRecord{Machine: spec.Machine{Type: spec.LXC}}, spec.MachineStatus{}, state.Alive)
	f.restart("/new")
	if _, err := f.driver(spec.LXC); err != nil || f.check() != nil {
		t.Errorf("%v, %v", err, f.check())
	}
	f.machine("web", state.Alive)
	f.put(spec.KindContainerType, "lxc", spec.TypeRecord{}, spec.TypeStatus{State: "ready"}, state.Alive)
	f.restart("/new")
	if _, err := f.driver(spec.LXC); err != nil || f.check() != nil {
		t.Errorf("of an earlier version: %v, %v", err, f.check())
	}
}

// Beside the snap's LXD, the Debian LXD that has the machines stays in use.
func TestTheLXDWithTheMachinesIsUsed(t *testing.T) {
	t.Setenv("LXD_DIR", "")
	f := newFoldered(t)
	f.put(spec.KindContainerType, "lxd", spec.TypeRecord{}, spec.TypeStatus{State: "ready", Folder: filepath.Join("/", f.dir, paths.DebianLXDDir)}, state.Alive)
	socket := func(dir string) {
		if err := os.MkdirAll(filepath.Join(f.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Chdir(filepath.Join(f.dir, dir))
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", "unix.socket")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	socket(paths.DebianLXDDir)
	socket(paths.SnapLXDDir)
	f.paths.Root = f.dir
	f.drivers = drivers()
	if got := f.drivers[spec.LXD].folder(f.paths, spec.TypesConfig{}); got != f.paths.Host(paths.SnapLXDDir) {
		t.Errorf("without a record: %s", got)
	}
	f.claims = map[spec.ContainerType]*hostlock.Lock{}
	t.Cleanup(func() { _ = f.unclaim() })
	config := spec.DefaultConfig()
	if err := f.claimAll(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if err := f.readFolders(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := f.drivers[spec.LXD].folder(f.paths, spec.TypesConfig{}); got != f.paths.Host(paths.DebianLXDDir) {
		t.Errorf("with the record: %s", got)
	}
	other := &host{paths: f.paths, drivers: f.drivers, claims: map[spec.ContainerType]*hostlock.Lock{}}
	err := other.claim(spec.LXD, f.paths.FindLXDSocket(""), f.config().Namespace)
	faulttest.Want(t, err, fault.Conflict, "another agent does")
}
