package brokertest

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"hostler/containerbroker"
)

// Method names a method of a broker, for faults and counters.
type Method string

// The methods that can be counted and made to fail.
const (
	List        Method = "List"
	Create      Method = "Create"
	Update      Method = "Update"
	SetPower    Method = "SetPower"
	Delete      Method = "Delete"
	Events      Method = "Events"
	Stamp       Method = "Stamp"
	Unstamp     Method = "Unstamp"
	WaitReady   Method = "WaitReady"
	Exec        Method = "Exec"
	Console     Method = "Console"
	Log         Method = "Log"
	EnsureImage Method = "EnsureImage"
	ListImages  Method = "ListImages"
	DeleteImage Method = "DeleteImage"
)

// Fake is an in-memory hypervisor together with its broker. It is safe for
// concurrent use and implements every optional ability.
type Fake struct {
	// Now is the clock. Set it before the Fake is used; New() sets time.Now.
	Now func() time.Time
	// Namespace is a namespace for tests. New() sets "hostler". The Fake does
	// not use it.
	Namespace string

	mu        sync.Mutex
	instances map[string]*fakeInstance
	images    map[string]*containerbroker.HypervisorImage
	missing   map[string]bool // image references that no source has
	hidden    map[string]bool
	faults    []*fault
	calls     map[Method]int
	log       []string
	streams   map[chan containerbroker.Event]bool
	nextPID   int64
	fetches   map[string]*fetch
}

// fakeInstance is an instance with the state that the Fake keeps for it.
type fakeInstance struct {
	instance containerbroker.Instance
	// addresses are the addresses that the interfaces get at the next start.
	addresses []string
	console   string
	broken    string // WaitReady's cloud-init error
}

var (
	_ containerbroker.Broker         = (*Fake)(nil)
	_ containerbroker.Differ         = (*Fake)(nil)
	_ containerbroker.EventSource    = (*Fake)(nil)
	_ containerbroker.Stamper        = (*Fake)(nil)
	_ containerbroker.ReadinessProbe = (*Fake)(nil)
	_ containerbroker.GuestAccess    = (*Fake)(nil)
	_ containerbroker.ImageStore     = (*Fake)(nil)
)

// New returns an empty hypervisor.
func New() *Fake {
	return &Fake{
		Now:       time.Now,
		Namespace: "hostler",
		instances: map[string]*fakeInstance{},
		images:    map[string]*containerbroker.HypervisorImage{},
		missing:   map[string]bool{},
		hidden:    map[string]bool{},
		calls:     map[Method]int{},
		streams:   map[chan containerbroker.Event]bool{},
		fetches:   map[string]*fetch{},
		nextPID:   1000,
	}
}

// Add adds an instance as if another tool had made it. It ignores the
// instance's Stored and Running settings.
func (f *Fake) Add(i containerbroker.Instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i.Created.IsZero() {
		i.Created = f.Now()
	}
	g := &fakeInstance{instance: i}
	if i.Stamp != nil {
		stamp := *i.Stamp
		g.instance.Stamp = &stamp
	}
	g.instance.Stored, g.instance.Running = containerbroker.Settings{}, nil
	g.store()
	if i.Status == containerbroker.StatusRunning && i.PID == 0 {
		f.boot(g)
	}
	f.instances[i.Name] = g
	f.publish(i.Name, "created")
}

// Remove removes an instance as if another tool had deleted it.
func (f *Fake) Remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.instances[name]; ok {
		delete(f.instances, name)
		f.publish(name, "deleted")
	}
}

// Rename renames an instance as if another tool had done so. It replaces an
// instance that already has the new name.
func (f *Fake) Rename(name, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g := f.instances[name]; g != nil {
		delete(f.instances, name)
		g.instance.Name = to
		f.instances[to] = g
		f.publish(name, "renamed")
	}
}

// with calls do with the instance of that name, if the instance exists.
func (f *Fake) with(name string, do func(*fakeInstance)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g := f.instances[name]; g != nil {
		do(g)
	}
}

// SetAddresses sets the addresses that an instance has from its next start on.
func (f *Fake) SetAddresses(name string, addresses ...string) {
	f.with(name, func(g *fakeInstance) {
		g.addresses = addresses
	})
}

// Kill stops a running instance as if its init had died.
func (f *Fake) Kill(name string) {
	f.with(name, func(g *fakeInstance) {
		if g.instance.Status == containerbroker.StatusRunning {
			f.halt(g)
			f.publish(name, "shutdown")
		}
	})
}

// Change changes an instance as if another tool had done so, e.g. to test
// drift, or a status that cannot be reached otherwise.
func (f *Fake) Change(name string, change func(*containerbroker.Instance)) {
	f.with(name, func(g *fakeInstance) {
		change(&g.instance)
		g.store()
		f.publish(name, "updated")
	})
}

// BreakCloudInit makes WaitReady report the given cloud-init error; "" removes
// the error.
func (f *Fake) BreakCloudInit(name, message string) {
	f.with(name, func(g *fakeInstance) {
		g.broken = message
	})
}

// Get returns an instance with PID and addresses, and whether it exists.
func (f *Fake) Get(name string) (containerbroker.Instance, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.instances[name]
	if g == nil {
		return containerbroker.Instance{}, false
	}
	return g.view(true), true
}

// Names returns the names of all instances, sorted.
func (f *Fake) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.names()
}

func (f *Fake) names() []string {
	names := make([]string, 0, len(f.instances))
	for name := range f.instances {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Calls returns how often a method was called.
func (f *Fake) Calls(m Method) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[m]
}

// Operations returns the changes that were made, in order, as "create web",
// "start web", "stop web", "restart web", "update web cpus", "delete web",
// "stamp web", "unstamp web", "fetch REF", "delete-image ID". Calls that
// changed nothing are left out.
func (f *Fake) Operations() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

// Forget empties the operation log and the counters.
func (f *Fake) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = nil
	clear(f.calls)
}

// String prints the instances, one per line, sorted by name.
func (f *Fake) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, name := range f.names() {
		i := f.instances[name].instance
		owner := "foreign"
		if i.Stamp != nil {
			owner = fmt.Sprintf("namespace=%s uid=%s token=%s", i.Stamp.Namespace, i.Stamp.UID, i.Stamp.Token)
		}
		fmt.Fprintf(&b, "%s %s image=%s cpus=%d memory=%d %s\n", name, i.Status, i.ImageID, i.CPUs, i.Memory, owner)
	}
	return b.String()
}

// view returns a copy that the caller may keep, without PID and addresses
// unless detail is set.
func (g *fakeInstance) view(detail bool) containerbroker.Instance {
	i := g.instance
	i.Stored = cloned(i.Stored)
	if i.Running != nil {
		running := cloned(*i.Running)
		i.Running = &running
	}
	if i.Stamp != nil {
		stamp := *i.Stamp
		i.Stamp = &stamp
	}
	i.Addresses = slices.Clone(i.Addresses)
	if !detail {
		i.PID, i.Addresses = 0, nil
	}
	return i
}

func cloned(s containerbroker.Settings) containerbroker.Settings {
	s.NICs, s.Addresses, s.Disks, s.Sizes = maps.Clone(s.NICs), maps.Clone(s.Addresses), maps.Clone(s.Disks), maps.Clone(s.Sizes)
	return s
}

// store copies the instance's properties, image and record into its settings.
func (g *fakeInstance) store() {
	i := &g.instance
	for _, s := range []*containerbroker.Settings{&i.Stored, i.Running} {
		if s == nil {
			continue
		}
		s.Properties, s.ImageID, s.Record = i.Properties, i.ImageID, ""
		if i.Stamp != nil {
			s.Record = i.Stamp.Record
		}
	}
}

func (f *Fake) boot(g *fakeInstance) {
	g.instance.Started = f.Now()
	f.nextPID++
	running := cloned(g.instance.Stored)
	g.instance.Running = &running
	g.instance.Status = containerbroker.StatusRunning
	g.instance.PID = f.nextPID
	n := f.nextPID - 1000
	g.instance.Addresses = slices.Clone(g.addresses)
	if len(g.addresses) == 0 {
		g.instance.Addresses = []string{fmt.Sprintf("192.0.2.%d", n%254+1)}
	}
}

func (f *Fake) halt(g *fakeInstance) {
	g.instance.Status = containerbroker.StatusStopped
	g.instance.PID, g.instance.Addresses, g.instance.Running = 0, nil, nil
}

func (f *Fake) note(format string, args ...any) {
	f.log = append(f.log, fmt.Sprintf(format, args...))
}
