package brokertest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hostler/containerbroker"
	kinds "hostler/internal/fault"
)

// Harness connects the suite to a hypervisor. The suite removes the instances
// that the suite itself makes.
type Harness struct {
	// Broker belongs to the agent of namespace Namespace. Other belongs to
	// another agent, of OtherNamespace, on the same hypervisor.
	Broker, Other             containerbroker.Broker
	Namespace, OtherNamespace string
	// Image is a reference to a small image whose init keeps running, obeys a
	// request to stop and, if Address is set, gets an address.
	Image   string
	Address bool
	// Virtual is true if instances are virtual machines. They are never
	// privileged, share no folders with the host and always have limits. The
	// guest must have booted before a device can be unplugged, and commands in
	// it have no terminals.
	Virtual bool
	// Bridge is a bridge of the host without a DHCP server. Folder makes a
	// folder on the host and Device a block device. Both return its path and
	// remove it when the test ends.
	Bridge         string
	Folder, Device func(t *testing.T) string
	// AddForeign makes a stopped instance without a stamp, and removes the
	// instance when the test ends.
	AddForeign func(t *testing.T, name string)
	// Detach removes a disk from the running instance but not from its stored
	// settings, as another tool might. It is nil if the hypervisor applies
	// every stored change at once.
	Detach func(t *testing.T, name, disk string)
	// Die makes the init of a running instance end.
	Die func(t *testing.T, name string)
	// Halve puts an instance into the state that a crash during its creation
	// leaves.
	Halve func(t *testing.T, name string)
	// BreakList makes the next listing fail or be truncated. LoseCreate makes
	// the next create do its work and then lose its reply.
	BreakList, LoseCreate func(t *testing.T)
}

// waitLimit bounds every wait of the suite.
const waitLimit = 60 * time.Second

type suite struct {
	Harness
	image string
	next  atomic.Int64
}

// Run tests that a broker keeps the contract of package containerbroker.
func Run(t *testing.T, h Harness) {
	s := &suite{Harness: h}
	if store, ok := h.Broker.(containerbroker.ImageStore); ok {
		id, err := store.EnsureImage(t.Context(), h.Image, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.image = id
		t.Run("K2 L2 images are made once and found again", s.imagesAreShared)
	}
	t.Run("K6 L1 L6 a new instance is stamped, stopped and limited as asked", s.createStamps)
	t.Run("Z5 Z7 create again with the same token is success", s.createAgain)
	t.Run("Z5 L9 create over another instance is a conflict", s.createConflict)
	t.Run("a refused create says that it made nothing", s.createRefused)
	t.Run("lost reply makes no second instance", s.createLostReply)
	t.Run("Z4 X8 B8 list shows stopped and foreign instances", s.listShowsAll)
	t.Run("P20 list is all or an error", s.listAllOrError)
	t.Run("L10 power changes are idempotent", s.power)
	t.Run("L11 K5 Z6 delete takes any state", s.deleteAny)
	t.Run("delete with another stamp changes nothing", s.deleteOther)
	t.Run("changed user-data is for a new instance, unless it is to run again", s.userDataStays)
	t.Run("the password of a proxy in user-data of an earlier version asks for no new instance", s.proxyUsersStay)
	t.Run("impossible attachments are refused", s.attachRefuses)
	t.Run("update refuses another machine's instance", s.updateRefuses)
	t.Run("B8 namespaces are separate", s.namespaces)
	t.Run("many instances at once", s.concurrent)
	if _, ok := h.Broker.(containerbroker.Stamper); ok {
		t.Run("stamp and unstamp", s.stamps)
	}
	if _, ok := h.Broker.(containerbroker.EventSource); ok {
		t.Run("events arrive and the stream ends", s.events)
	}
	t.Run("booted", s.booted)
}

// booted runs the tests that wait for a guest to boot. They run side by side,
// because each looks at its own instances only, and none breaks a call.
func (s *suite) booted(t *testing.T) {
	run := func(name string, test func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
	run("L6 update is live and leaves no difference", s.updateLive)
	run("K6 L4 N2 N18 a new instance has its interfaces and disks", s.createAttached)
	run("L4 interfaces come, change and go", s.interfaces)
	run("V3 V5 disks come, change and go while it runs", s.disks)
	if s.Detach != nil {
		run("W12 I15 the stored and the running settings are compared", s.runningDiffers)
	}
	if _, ok := s.Broker.(containerbroker.ReadinessProbe); ok {
		run("L10 ready waits for a running instance", s.ready)
	}
	if _, ok := s.Broker.(containerbroker.GuestAccess); ok {
		run("exec gives output and exit code", s.exec)
		if !s.Virtual {
			run("a terminal follows its size", s.terminal)
		}
	}
}

// machine returns a machine with a new name and stamp. If an instance is made
// for it, that instance is deleted when the test ends.
func (s *suite) machine(t *testing.T) containerbroker.Machine {
	t.Helper()
	name := fmt.Sprintf("conform-%d", s.next.Add(1))
	m := containerbroker.Machine{
		Name: name, ImageID: s.image, ExpectAddress: s.Address,
		Properties: containerbroker.Properties{CPUs: 1, Memory: 128 << 20, Autostart: true},
		Stamp: containerbroker.Stamp{
			Namespace: s.Namespace, UID: "uid-" + name, Token: "token-" + name,
			Store:  "store-1 opening-1 7",
			Record: `{"machine": {"image": "` + strings.Repeat("ü", 300) + `"}}`,
		},
	}
	t.Cleanup(func() {
		if err := s.Broker.Delete(context.WithoutCancel(t.Context()), name, m.Stamp); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	if s.Virtual {
		m.Memory = 768 << 20
	}
	return m
}

func (s *suite) created(t *testing.T) containerbroker.Machine {
	t.Helper()
	m := s.machine(t)
	must(t, s.Broker.Create(t.Context(), m, nil))
	return m
}

func (s *suite) running(t *testing.T) containerbroker.Machine {
	t.Helper()
	m := s.created(t)
	must(t, s.Broker.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	return m
}

// up makes and starts an instance, and waits until devices can be plugged into
// it and unplugged.
func (s *suite) up(t *testing.T) containerbroker.Machine {
	t.Helper()
	m := s.running(t)
	if probe, ok := s.Broker.(containerbroker.ReadinessProbe); ok && s.Virtual {
		_, err := probe.WaitReady(t.Context(), m, nil)
		must(t, err)
	}
	return m
}

// rootDisk returns the size of a root disk that is large enough for the image,
// in bytes.
func (s *suite) rootDisk() int64 {
	if s.Virtual {
		return 10 << 30
	}
	return 1 << 30
}

// find returns the listed instance of that name, or nil.
func (s *suite) find(t *testing.T, name string) *containerbroker.Instance {
	t.Helper()
	all, err := s.Broker.List(t.Context(), true)
	must(t, err)
	var found *containerbroker.Instance
	for i := range all {
		if all[i].Name == name {
			if found != nil {
				t.Fatalf("%s is listed twice", name)
			}
			found = &all[i]
		}
	}
	return found
}

func (s *suite) get(t *testing.T, name string) containerbroker.Instance {
	t.Helper()
	found := s.find(t, name)
	if found == nil {
		t.Fatalf("%s is not listed", name)
	}
	return *found
}

func (s *suite) diff(t *testing.T, m containerbroker.Machine) []containerbroker.Change {
	t.Helper()
	return s.Broker.(containerbroker.Differ).Diff(m, s.get(t, m.Name))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, kind kinds.Kind) {
	t.Helper()
	if !kinds.Is(err, kind) {
		t.Errorf("want an error of kind %s, got %v (kind %q)", kind, err, kinds.KindOf(err))
	}
}

func wantStatus(t *testing.T, i containerbroker.Instance, status containerbroker.Status) {
	t.Helper()
	if i.Status != status {
		t.Fatalf("%s is %s, want %s", i.Name, i.Status, status)
	}
}
