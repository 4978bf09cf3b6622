package conffiles

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hostler/agent/api"
	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/hosttest"
	"hostler/internal/plan"
)

// looksAtNothing is a planner of a host with unlimited resources.
type looksAtNothing struct{}

func (looksAtNothing) Plan(context.Context, []declare.Planned, map[string]bool) ([]client.Step, error) {
	return nil, nil
}
func (looksAtNothing) Refuse(context.Context, []declare.Planned) error { return nil }

func (looksAtNothing) Remember(netip.Addr)                     {}
func (looksAtNothing) Confirm(context.Context) (string, error) { return "", nil }
func (looksAtNothing) Revert(context.Context) (string, error)  { return "", nil }

// confd is the reader of conf.d over the real API and a real store.
type confd struct {
	*api.Server
	*Declarations
	store state.Backend

	mu      sync.Mutex
	notices map[string]string
	read    []string // the texts in force
	during  func(path string)
}

// newConfd creates an agent's reader. The store has its own folder.
func newConfd(t *testing.T, change ...func(*Options)) *confd {
	t.Helper()
	store, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	c := confdOver(t, store, append([]func(*Options){func(o *Options) { o.Dir = filepath.Join(t.TempDir(), "conf.d") }}, change...)...)
	if err := c.writeConfig(t.Context(), spec.DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	return c
}

// confdOver creates an agent's reader over a store.
func confdOver(t *testing.T, store state.Backend, change ...func(*Options)) *confd {
	t.Helper()
	c := &confd{store: store, notices: map[string]string{}}
	o := Options{
		Record: store.Record, Notice: c.notice, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Group: func() int { return 0 }, Device: c.device, SetDevice: c.setDevice,
	}
	for _, f := range change {
		f(&o)
	}
	c.Declarations = NewDeclarations(o)
	s, err := api.NewServer(api.Options{
		Backend: store, Unread: c.Unread, Service: api.Service{Planner: looksAtNothing{}, Guard: looksAtNothing{}}, Logger: slog.New(slog.DiscardHandler), Namespace: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Server = s
	return c
}

func (c *confd) notice(key, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text == "" {
		delete(c.notices, key)
		return
	}
	c.notices[key] = text
}

// configuration follows a configuration file with the same notices and store.
func (c *confd) configuration(path string, logger *slog.Logger) *Configuration {
	return &Configuration{Path: path, Notice: c.notice, Logger: logger, Now: time.Now, Current: spec.DefaultConfig, Write: c.writeConfig}
}

// told returns the notices, sorted.
func (c *confd) told() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Values(c.notices)), "\n")
}

var hostID = state.ID{Kind: spec.KindHost, Name: spec.HostName}

// writeConfig writes the configuration into the host's record, from which the
// API reads it.
func (c *confd) writeConfig(ctx context.Context, config spec.Config) error {
	for {
		o, err := c.store.Get(ctx, hostID)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		_, err = c.store.Write(ctx, state.Atomic, state.Write{ID: hostID, Revision: o.Revision, Spec: spec.Encode(spec.HostRecord{Config: config}), Life: state.Alive})
		if !fault.Is(err, fault.Conflict) {
			return err
		}
	}
}

func (c *confd) hostStatus(ctx context.Context) (status spec.HostStatus, err error) {
	o, err := c.store.Get(ctx, hostID)
	if err == nil && len(o.Status) > 0 {
		err = json.Unmarshal(o.Status, &status)
	}
	return status, err
}

func (c *confd) writeHostStatus(ctx context.Context, status spec.HostStatus) error {
	_, err := c.store.Write(ctx, state.Atomic, state.Write{ID: hostID, Revision: state.AnyRevision, Status: spec.Encode(status)})
	return err
}

func (c *confd) device(ctx context.Context) (string, error) {
	status, err := c.hostStatus(ctx)
	return status.ConfDevice, err
}

func (c *confd) setDevice(ctx context.Context, device string) error {
	status, err := c.hostStatus(ctx)
	if err != nil {
		return err
	}
	status.ConfDevice = device
	return c.writeHostStatus(ctx, status)
}

// ApplyFolder implements Applier.
func (c *confd) ApplyFolder(ctx context.Context, f declare.Folder) (declare.FolderAnswer, error) {
	c.mu.Lock()
	for path, file := range f.Files {
		if file.Err == nil {
			c.read = append(c.read, string(file.Content))
		}
		if c.during != nil {
			c.during(path)
		}
	}
	c.mu.Unlock()
	return c.Server.ApplyFolder(ctx, f)
}

// apply reads the folder once and returns the delay before the next reading.
func (c *confd) apply(t *testing.T, r *folderReader) time.Duration {
	t.Helper()
	next, _, _, err := r.apply(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// lives returns the machines that are alive, and those with a held removal.
func (c *confd) lives(t *testing.T) (alive, held []string) {
	t.Helper()
	objects, _, err := c.store.List(t.Context(), spec.KindMachine)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		var r spec.MachineRecord
		if err := json.Unmarshal(o.Spec, &r); err != nil {
			t.Fatal(err)
		}
		if o.Life == state.Alive {
			alive = append(alive, o.Name)
			if r.Held != "" {
				held = append(held, o.Name)
			}
		}
	}
	return alive, held
}

func document(machines ...string) string {
	var text strings.Builder
	text.WriteString("version: 1\nmachines:\n")
	for _, m := range machines {
		text.WriteString("  " + m + ": {type: lxd, image: debian/12}\n")
	}
	return text.String()
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFolderOfDeclarations(t *testing.T) {
	clock := time.Now()
	dir := t.TempDir()
	c := newConfd(t, func(o *Options) { o.Dir, o.Now = dir, func() time.Time { return clock } })
	at := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, at("one.yaml"), document("a"))
	writeFile(t, at("two.json"), `{"version": 1, "machines": {"b": {"type": "lxd", "image": "debian/12"}}}`)
	writeFile(t, at("notes.txt"), "notes")
	writeFile(t, at(".hidden.yaml"), document("z"))
	r := c.newReader()
	wantAlive := func(want ...string) {
		t.Helper()
		if alive, _ := c.lives(t); !slices.Equal(alive, want) {
			t.Errorf("machines %v, want %v", alive, want)
		}
	}
	if next := c.apply(t, r); next != 0 || len(c.notices) != 0 {
		t.Errorf("again in %s, notices %v", next, c.notices)
	}
	wantAlive("a", "b")

	// A file that is absent for a moment removes nothing; a file that is absent
	// for longer does, unless another file has its declaration.
	if err := os.Rename(at("one.yaml"), at("three.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(at("two.json")); err != nil {
		t.Fatal(err)
	}
	if next := c.apply(t, r); next <= 0 || next > goneFor {
		t.Errorf("again in %s", next)
	}
	wantAlive("a", "b")
	clock = clock.Add(goneFor)
	if next := c.apply(t, r); next != 0 {
		t.Errorf("again in %s", next)
	}
	wantAlive("a")

	// A file with errors is reported in a notice and an event, and nothing is
	// removed meanwhile.
	writeFile(t, at("three.yaml"), "version: 1\nmachine: {}\n")
	c.apply(t, r)
	if !strings.Contains(c.notices[at("three.yaml")], "three.yaml:2:1") {
		t.Errorf("notices %v", c.notices)
	}
	events, err := c.store.Events(t.Context(), state.EventQuery{Object: &state.ID{Kind: spec.KindDeclaration, Name: "three"}})
	if err != nil || len(events) != 1 || !strings.Contains(events[0].Message, "no object is removed") {
		t.Errorf("events %+v, %v", events, err)
	}
	wantAlive("a")
	writeFile(t, at("three.yaml"), document("a", "c"))

	// A pipe does not block the reader.
	if err := syscall.Mkfifo(at("pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c.apply(t, r); !strings.Contains(c.notices[at("pipe.yaml")], "not a file") || len(c.notices) != 1 {
		t.Errorf("notices %v", c.notices)
	}
	wantAlive("a", "c")

	// The notice about a file ends with the file, even if the file was never in
	// force.
	c.notice("/elsewhere", "another matter")
	if err := os.Remove(at("pipe.yaml")); err != nil {
		t.Fatal(err)
	}
	if c.apply(t, r); len(c.notices) != 1 || c.notices["/elsewhere"] == "" {
		t.Errorf("notices %v", c.notices)
	}
}

// A folder on another filesystem than at the last reading, which may be an
// earlier agent's, removes nothing, even in modes that obey removals.
func TestAFolderOnAnotherFileSystemRemovesNothing(t *testing.T) {
	dir := t.TempDir()
	c := newConfd(t, func(o *Options) { o.Dir = dir })
	config := spec.DefaultConfig()
	config.Removals = spec.RemovalsObey
	if err := c.writeConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "one.yaml"), document("a", "b"))
	c.apply(t, c.newReader())
	status, err := c.hostStatus(t.Context())
	if err != nil || status.ConfDevice == "" {
		t.Fatalf("device %q, %v", status.ConfDevice, err)
	}
	status.ConfDevice = "0:1"
	if err := c.writeHostStatus(t.Context(), status); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "one.yaml"), document("a"))
	for range 2 {
		c.apply(t, c.newReader())
		if alive, held := c.lives(t); !slices.Equal(alive, []string{"a", "b"}) || !slices.Equal(held, []string{"b"}) {
			t.Errorf("machines %v, held %v", alive, held)
		}
	}
}

// I14: notices about wrong files name the place and repeat no password.
func TestNoticesRepeatNoSecrets(t *testing.T) {
	dir := t.TempDir()
	var logged strings.Builder
	logger := slog.New(slog.NewTextHandler(&logged, nil))
	c := newConfd(t, func(o *Options) { o.Dir, o.Logger = dir, logger })
	conf := c.configuration(filepath.Join(dir, "hostler.yaml"), logger)
	declaration := filepath.Join(dir, "web.yaml")
	writeFile(t, declaration, "version: 1\nmachines: {}\n  password: hunter2\n")
	if err := os.WriteFile(conf.Path, []byte("proxy: {http: 'ftp://user:hunter2@p:1'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.apply(t, c.newReader())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- conf.Run(ctx) }()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(c.told(), "hostler.yaml:1:15: proxy.http"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("told: %s", c.told())
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(c.told(), "web.yaml:3:") || strings.Contains(c.told()+logged.String(), "hunter2") || !strings.Contains(logged.String(), "hostler.yaml:1:15") {
		t.Errorf("told: %s\nlogged: %s", c.told(), logged.String())
	}
}

// I16: neither a missing folder nor an empty folder in its place removes
// anything.
func TestLostFolderRemovesNothing(t *testing.T) {
	c := newConfd(t)
	dir := c.o.Dir
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, c) }()
	exists := func() bool { _, err := os.Stat(dir); return err == nil }
	declared := func() bool { alive, _ := c.lives(t); return len(alive) > 0 }
	eventually(t, "a folder where nothing is declared", exists)
	writeFile(t, filepath.Join(dir, "one.yaml"), document("a"))
	eventually(t, "the machine of the file", declared)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a notice", func() bool { return strings.Contains(c.told(), "is missing") })
	if !strings.Contains(c.told(), "create it empty and run `hostler allow destroy KIND/NAME`") { // an empty folder alone removes nothing, see below
		t.Errorf("told: %s", c.told())
	}
	if !declared() || exists() {
		t.Errorf("declared %v, there %v", declared(), exists())
	}
	if err := os.Rename(dir+".old", dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the notice", func() bool { return c.told() == "" })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(dir, "one.yaml")); err != nil {
		t.Fatal(err)
	}
	clock := time.Now()
	c.o.Now = func() time.Time { return clock }
	r := c.newReader()
	c.apply(t, r)
	clock = clock.Add(goneFor)
	c.apply(t, r)
	if alive, held := c.lives(t); len(alive) != 1 || len(held) != 1 {
		t.Errorf("machines %v, held %v", alive, held)
	}
}

// A symbolic link in conf.d counts as its target: a change of the target or of
// the link is seen. The same holds for the configuration file.
func TestChangesOfLinkedFilesAreSeen(t *testing.T) {
	elsewhere := t.TempDir()
	a := newConfd(t)
	dir := a.o.Dir
	conf := a.configuration(filepath.Join(filepath.Dir(dir), "hostler.yaml"), slog.New(slog.DiscardHandler))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, content string) { t.Helper(); must(os.WriteFile(path, []byte(content), 0o600)) }
	for _, d := range []string{dir, filepath.Join(elsewhere, "v1"), filepath.Join(elsewhere, "v2")} {
		must(os.Mkdir(d, 0o755))
	}
	one, config := filepath.Join(elsewhere, "one.yaml"), filepath.Join(elsewhere, "config")
	write(one, "1")
	write(config, "harvest: none\n")
	write(filepath.Join(elsewhere, "v1", "f"), "first")
	write(filepath.Join(elsewhere, "v2", "f"), "second")
	must(os.Symlink(one, filepath.Join(dir, "web.yaml")))
	must(os.Symlink("v1", filepath.Join(elsewhere, "now")))
	must(os.Symlink(filepath.Join(elsewhere, "now", "f"), filepath.Join(dir, "db.yaml")))
	must(os.Symlink(config, conf.Path))

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- a.Run(ctx, a) }()
	go func() { done <- conf.Run(ctx) }()
	read := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { a.mu.Lock(); defer a.mu.Unlock(); return slices.Contains(a.read, what) })
	}
	read("1")
	read("first")
	write(one, "2")
	read("2")
	write(one+".new", "3")
	must(os.Rename(one+".new", one))
	read("3")
	must(os.Remove(one))
	eventually(t, "word of the lost file", func() bool { return strings.Contains(a.told(), "web.yaml is not applied") })
	write(one, "4")
	read("4")
	must(os.Symlink("v2", filepath.Join(elsewhere, "next")))
	must(os.Rename(filepath.Join(elsewhere, "next"), filepath.Join(elsewhere, "now")))
	write(one, "5") // the folder of "now" is watched for it
	read("second")
	write(config, "harvest: none\nconcurrency: many\n")
	eventually(t, "word of the configuration", func() bool { return strings.Contains(a.told(), "concurrency: must be") })
	cancel()
	for range 2 {
		must(<-done)
	}
}

// A missing folder does not delay the end of the agent.
func TestDeclarationsEndWithoutTheirFolder(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := newConfd(t, func(o *Options) { o.Dir = filepath.Join(t.TempDir(), "absent", "conf.d") })
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx, nil) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}

// Declarations hold user-data, so the folder is created with the package's
// mode.
func TestTheFolderOfDeclarationsIsMadeForAdministratorsOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc", "conf.d")
	if err := makeFolder(dir, 0); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// The notice about a held step names the command that allows it, or the
// obstacle if consent does not help.
func TestTheNoticeOfAHeldStepNamesItsCommand(t *testing.T) {
	const path = "/etc/hostler/conf.d/site.yaml"
	for want, st := range map[string]plan.Step{
		"`hostler apply -f " + path + " --allow restart` lets it happen": {Object: "network/lan", Action: "update", Held: "changing the MTU cuts off machine/web", Allow: "restart"},
		"is held: its allocation is full and cannot become sparse":       {Object: "volume/data", Action: "attach", Held: "its allocation is full and cannot become sparse"},
	} {
		c := newConfd(t)
		c.reportFile(t.Context(), path, declare.FolderAnswer{Held: map[string]plan.Step{path: st}})
		if got := c.notices[path]; !strings.HasSuffix(got, want) {
			t.Errorf("the notice is %q, want %q at its end", got, want)
		}
	}
}
