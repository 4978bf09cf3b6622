package networkprovisioner

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/hostnet/dhcp"
	"hostler/hostnet/firewall"
	"hostler/hostnet/guard"
	"hostler/hostnet/persist"
	"hostler/internal/fault"
	"hostler/internal/hosttest"
	"hostler/sysctl"
)

// rig is a worker on a real store with an in-memory host. Tests run its passes
// singly; the fields hold the results.
type rig struct {
	t          *testing.T
	store      *state.Local
	worker     *Worker
	o          Observed
	now        time.Time
	fails      map[string]error // by the link of the step
	applied    []string
	numbers    int               // of created links; none is reused
	dropped    []string          // bridges that no longer survive a reboot
	persistErr error             // the error of dropping them
	obstacles  map[string]string // by NIC
	armed      string            // the object of the guard's change
	waits      bool              // the guard's changes wait for a confirmation
	paused     bool              // a DHCP client remains paused
	resumes    int               // the attempts to resume clients
	resumeErr  error             // the error of these attempts
	rules      firewall.Rules
	rulesErr   error                       // the error of loading them
	guarded    firewall.Rules              // the rules at the last change that the guard made
	settings   map[string][]sysctl.Setting // by owner
	// missing are the programs that the host lacks and cannot install.
	missing   struct{ all, dhcp bool }
	installs  int
	servers   map[string]bool // running servers, by uid
	notices   map[string]string
	exclusive map[string]string // the uid of the server on each bridge
	bound     map[string]int    // the bridge index that each server was given, by uid
}

func newRig(t *testing.T, o Observed) *rig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	r := &rig{t: t, o: o, now: t0, fails: map[string]error{}, servers: map[string]bool{}, notices: map[string]string{}, exclusive: map[string]string{}, bound: map[string]int{}, settings: map[string][]sysctl.Setting{}}
	var err error
	if r.store, _, err = state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t), Clock: time.Now, Logger: log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
	})
	r.worker = New(reconcile.Common{
		Store: r.store, Now: func() time.Time { return r.now }, Logger: log,
		Notice: func(key, text string) {
			r.notices[key] = text
			if text == "" {
				delete(r.notices, key)
			}
		},
	}, Options{
		Links: r, Firewall: rigFirewall{r}, Parameters: rigParameters{r}, Guard: rigGuard{r}, Tools: r,
		Eyes: Eyes{
			Host: r, Root: t.TempDir(), ServerDir: t.TempDir(), Guard: rigGuard{r}, Persister: rigPersister{r},
			Server: func(uid string) Server { return rigServer{r, uid} },
			Tables: func(context.Context) (Tables, error) { return rigTables(r.rules), nil },
		},
		Defaults: policy(),
	})
	return r
}

// declare writes a network's record as apply does.
func (r *rig) declare(name string, n spec.Network) {
	r.t.Helper()
	r.write(state.Write{ID: state.ID{Kind: spec.KindNetwork, Name: name}, Spec: spec.Encode(spec.NetworkRecord{Network: n}), Life: state.Alive})
}

// redeclare writes a network's record whether it exists or not.
func (r *rig) redeclare(name string, n spec.Network) {
	r.t.Helper()
	w := state.Write{ID: state.ID{Kind: spec.KindNetwork, Name: name}, Spec: spec.Encode(spec.NetworkRecord{Network: n}), Life: state.Alive}
	if _, there := r.status(name); there {
		w.Revision = state.AnyRevision
	}
	r.write(w)
}

func (r *rig) write(w state.Write) {
	r.t.Helper()
	if _, err := r.store.Write(r.t.Context(), state.Atomic, w); err != nil {
		r.t.Fatal(err)
	}
}

// pass runs one pass of the worker.
func (r *rig) pass() (next time.Time) {
	r.t.Helper()
	next, err := r.worker.converge(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return next
}

func (r *rig) status(name string) (s spec.NetworkStatus, there bool) {
	r.t.Helper()
	o, err := r.store.Get(r.t.Context(), state.ID{Kind: spec.KindNetwork, Name: name})
	if fault.Is(err, fault.NotFound) {
		return s, false
	}
	if err == nil && len(o.Status) > 0 {
		err = json.Unmarshal(o.Status, &s)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return s, true
}

// events returns the messages of a network's events.
func (r *rig) events(name string) (messages []string) {
	r.t.Helper()
	all, err := r.store.Events(r.t.Context(), state.EventQuery{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range all {
		if e.Object.Kind == spec.KindNetwork && e.Object.Name == name {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

// Observe implements Links.
func (r *rig) Observe(context.Context) (hostnet.Observed, error) {
	o := r.o.Host
	o.Links, o.Addresses, o.Routes = slices.Clone(o.Links), slices.Clone(o.Addresses), slices.Clone(o.Routes)
	return o, nil
}

// Apply implements Links.
func (r *rig) Apply(_ context.Context, s hostnet.Step) error {
	if err := r.fails[s.Link]; err != nil {
		return err
	}
	do(&r.o, s)
	if at := len(r.o.Host.Links) - 1; s.Op == hostnet.MakeBridge {
		r.numbers++
		r.o.Host.Links[at].Index = r.numbers
	}
	r.applied = append(r.applied, s.String())
	return nil
}

// Watch implements Links.
func (r *rig) Watch(context.Context, hostnet.Topic) (<-chan hostnet.Wake, error) {
	return nil, context.Canceled
}

// Have implements Tools.
func (r *rig) Have(dhcp bool) bool { return !r.missing.all && (!dhcp || !r.missing.dhcp) }

// Install implements Tools.
func (r *rig) Install(context.Context, func(string)) error {
	r.installs++
	if r.Have(true) {
		return nil
	}
	return fault.New(fault.Transient, "cannot install dnsmasq-base: no mirror answers")
}

type rigFirewall struct{ r *rig }

func (f rigFirewall) Apply(_ context.Context, rules firewall.Rules) (bool, error) {
	if err := rules.Check(); err != nil {
		return false, err
	}
	if f.r.missing.all {
		return false, fault.New(fault.NeedsOperator, "cannot run nft: there is none")
	}
	if f.r.rulesErr != nil {
		return false, f.r.rulesErr
	}
	f.r.rules = rules
	return true, nil
}

// rigTables holds the rules last loaded.
type rigTables firewall.Rules

func (l rigTables) Holds(r firewall.Rules) bool {
	return len(l.Networks)+len(r.Networks) == 0 || fmt.Sprint(l) == fmt.Sprint(rigTables(r))
}
func (rigTables) Findings(firewall.Rules) []firewall.Finding { return nil }

// Recall returns the rules last loaded, as the kernel's table does.
func (l rigTables) Recall(networks []firewall.Network) (known []firewall.Network) {
	for _, n := range networks {
		for _, loaded := range l.Networks {
			if loaded.Owner == n.Owner && slices.Equal(loaded.Subnets, n.Subnets) {
				known = append(known, loaded)
			}
		}
	}
	return known
}

type rigParameters struct{ r *rig }

func (p rigParameters) Apply(_ context.Context, owner string, settings []sysctl.Setting) ([]string, error) {
	p.r.settings[owner] = settings
	return nil, nil
}

func (p rigParameters) Holds(owner string, settings []sysctl.Setting) bool {
	return fmt.Sprint(p.r.settings[owner]) == fmt.Sprint(settings)
}
func (rigParameters) Satisfied([]sysctl.Setting) (bool, string) { return true, "" }
func (p rigParameters) Owned(owner string) (names []string, _ error) {
	for _, s := range p.r.settings[owner] {
		names = append(names, s.Name)
	}
	return names, nil
}
func (rigParameters) Read(string) (string, error) { return "1", nil }
func (rigParameters) ReleaseInUse(context.Context, string, string, []string) ([]string, error) {
	return nil, nil
}

type rigGuard struct{ r *rig }

func (g rigGuard) Run(ctx context.Context, c guard.Change) error {
	if g.r.armed != "" {
		return fault.New(fault.NotReady, "the change for %s is under way", g.r.armed)
	}
	g.r.armed = c.Object
	defer func() {
		if !g.r.waits {
			g.r.armed = ""
		}
	}()
	if c.Begin != nil {
		if err := c.Begin(ctx); err != nil {
			return err
		}
	}
	g.r.guarded = g.r.rules
	for _, s := range c.Steps {
		if err := g.r.Apply(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
func (g rigGuard) Armed() (guard.Armed, bool)    { return guard.Armed{Object: g.r.armed}, g.r.armed != "" }
func (g rigGuard) Refused(string, string) string { return "" }

type rigPersister struct{ r *rig }

func (l rigPersister) Persist(_ context.Context, b persist.Bridge) error {
	if !slices.Contains(l.r.o.Own.Persistent, b.Name) {
		l.r.o.Own.Persistent = append(l.r.o.Own.Persistent, b.Name)
	}
	return nil
}

func (l rigPersister) Holds(b persist.Bridge) bool {
	return slices.Contains(l.r.o.Own.Persistent, b.Name)
}

func (l rigPersister) Pause(_ context.Context, link string) error {
	l.r.applied = append(l.r.applied, fmt.Sprintf("pause %s during %s", link, l.r.armed))
	return nil
}
func (l rigPersister) Obstacle(nic persist.NIC) string { return l.r.obstacles[nic.Name] }
func (l rigPersister) Resume(context.Context, func(string) bool) (bool, error) {
	l.r.resumes++
	return l.r.paused, l.r.resumeErr
}
func (l rigPersister) Bridges() []string           { return l.r.o.Own.Persistent }
func (l rigPersister) Restored() map[string]string { return l.r.o.Own.Restored }
func (l rigPersister) Restore(_ context.Context, bridge string) error {
	l.r.applied = append(l.r.applied, "restore "+bridge)
	return nil
}

func (l rigPersister) Drop(_ context.Context, bridge string) error {
	if l.r.persistErr != nil {
		return l.r.persistErr
	}
	l.r.dropped = append(l.r.dropped, bridge)
	l.r.o.Own.Persistent = slices.DeleteFunc(slices.Clone(l.r.o.Own.Persistent), func(b string) bool { return b == bridge })
	return nil
}

type rigServer struct {
	r   *rig
	uid string
}

func (s rigServer) Ensure(_ context.Context, n dhcp.Network) (bool, error) {
	if s.r.missing.dhcp && !s.r.servers[s.uid] {
		return false, fault.New(fault.NeedsOperator, "cannot start dnsmasq: there is none")
	}
	if other := s.r.exclusive[n.Bridge]; other != "" && other != s.uid {
		return false, fault.New(fault.Transient, "cannot start dnsmasq: another serves %s", n.Bridge)
	}
	s.r.exclusive[n.Bridge] = s.uid
	if err := os.MkdirAll(filepath.Join(s.r.worker.Eyes.ServerDir, s.uid), 0o755); err != nil {
		return false, err
	}
	started := !s.r.servers[s.uid] || s.r.bound[s.uid] != n.Index
	s.r.servers[s.uid], s.r.bound[s.uid] = true, n.Index
	return started, nil
}
func (s rigServer) Running() bool             { return s.r.servers[s.uid] }
func (s rigServer) Holds(n dhcp.Network) bool { return s.Running() && s.r.bound[s.uid] == n.Index }
func (s rigServer) Remove(context.Context) error {
	delete(s.r.servers, s.uid)
	for bridge, uid := range s.r.exclusive {
		if uid == s.uid {
			delete(s.r.exclusive, bridge)
		}
	}
	return os.RemoveAll(filepath.Join(s.r.worker.Eyes.ServerDir, s.uid))
}
