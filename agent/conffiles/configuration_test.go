package conffiles

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"hostler/agent/spec"
)

// The notice names only changed keys that take effect after a restart of the
// agent.
func TestChangesThatNeedARestartAreReported(t *testing.T) {
	for yaml, want := range map[string]string{
		"":                                      "",
		"harvest: all":                          "",
		"concurrency: 7":                        "",
		"authorized-keys: []":                   "",
		"types: {lxd: {pool: fast}}":            "types",
		"images: {refresh: 24h}":                "images",
		"images: {sources: [local]}":            "images",
		"apt: {mirror: 'http://m/d'}":           "apt",
		"proxy: {http: 'http://p:1'}":           "proxy",
		"proxy: {no: x}\nimages: {refresh: 1h}": "images, proxy",
	} {
		config, _, err := spec.ParseConfig("hostler.yaml", []byte(yaml+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		got := needRestart("hostler.yaml", spec.DefaultConfig(), config)
		if want == "" && got != "" || want != "" && !strings.Contains(got, "under "+want+" take effect") {
			t.Errorf("%s: %q", yaml, got)
		}
	}
}

// followed is a Configuration of a file, with what it put in force.
type followed struct {
	*Configuration
	t       *testing.T
	file    string
	written chan spec.Config
	notices chan string // under the key configuration
}

// follow reads the file as at the agent's start, and then follows it. An empty
// text means that there is no file.
func follow(t *testing.T, text string, last ...*spec.Config) *followed {
	t.Helper()
	f := &followed{t: t, file: filepath.Join(t.TempDir(), "hostler.yaml"), written: make(chan spec.Config, 100), notices: make(chan string, 100)}
	if text != "" {
		f.save(text)
	}
	var current atomic.Pointer[spec.Config]
	f.Configuration = &Configuration{
		Path: f.file, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Notice: func(key, text string) {
			if key == "configuration" {
				f.notices <- text
			}
		},
		Current: func() spec.Config { return *current.Load() },
		Write: func(_ context.Context, c spec.Config) error {
			current.Store(&c)
			f.written <- c
			return nil
		},
	}
	config, err := f.Await(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range last {
		config = f.Resume(config, c)
	}
	current.Store(&config)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *followed) save(text string) {
	f.t.Helper()
	if err := os.WriteFile(f.file+".new", []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.file+".new", f.file); err != nil {
		f.t.Fatal(err)
	}
}

// await returns the first configuration put in force for which is() holds.
func (f *followed) await(is func(spec.Config) bool) spec.Config {
	f.t.Helper()
	for late := time.After(10 * time.Second); ; {
		select {
		case c := <-f.written:
			if is(c) {
				return c
			}
		case <-late:
			f.t.Fatal("it is not put in force")
		}
	}
}

// noticed waits for a notice that contains text.
func (f *followed) noticed(text string) {
	f.t.Helper()
	for late := time.After(10 * time.Second); ; {
		select {
		case notice := <-f.notices:
			if strings.Contains(notice, text) {
				return
			}
		case <-late:
			f.t.Fatalf("no notice contains %q", text)
		}
	}
}

// Changed types take effect at the agent's next start, as the notice says: until
// then no worker that starts finds them.
func TestTypesChangeAtTheNextStart(t *testing.T) {
	f := follow(t, "types: {lxc: {path: /srv/lxc}}\n")
	f.save("harvest: none\ntypes: {lxc: {path: /var/lib/lxc}}\n")
	if c := f.await(func(c spec.Config) bool { return c.Harvest == "none" }); c.Types.LXC.Path != "/srv/lxc" {
		t.Errorf("LXC's folder is %s already", c.Types.LXC.Path)
	}
}

// A file that vanishes changes nothing, and a notice says so: with the defaults,
// e.g. a harvest of "none" would begin to destroy. An empty file has the defaults.
func TestVanishedConfigurationIsKept(t *testing.T) {
	f := follow(t, "harvest: none\nguard: {probes: [192.0.2.1]}\n")
	f.await(func(c spec.Config) bool { return c.Harvest == "none" })
	if err := os.Remove(f.file); err != nil {
		t.Fatal(err)
	}
	f.noticed("is missing: the last configuration is kept")
	select {
	case c := <-f.written:
		t.Errorf("put in force: %+v", c)
	default:
	}
	f.save("\n")
	f.await(func(c spec.Config) bool { return c.Harvest == "destroyed" && len(c.Guard.Probes) == 0 })
}

// Without a file at its start, the agent keeps the configuration that its store
// has, and says so. A host that never had a file, or had one with the defaults,
// has the defaults and no notice.
func TestMissingConfigurationAtTheStart(t *testing.T) {
	own := spec.DefaultConfig()
	own.Harvest, own.Types.LXC.Path = "none", "/srv/lxc"
	for name, c := range map[string]struct {
		last *spec.Config
		want spec.Config
		kept bool
	}{
		"none recorded": {nil, spec.DefaultConfig(), false},
		"the defaults":  {new(spec.DefaultConfig()), spec.DefaultConfig(), false},
		"others":        {&own, own, true},
	} {
		f := follow(t, "", c.last)
		if got := f.Current(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
		if c.kept {
			f.noticed("is missing: the last configuration is kept")
		} else if text := <-f.notices; text != "" {
			t.Errorf("%s: notice %q", name, text)
		}
	}
}

// Warnings are about the file as it is now, even if it has errors or is absent.
func TestWarningsEndWithTheirCause(t *testing.T) {
	warnings := map[string]string{}
	c := &Configuration{
		Path: filepath.Join(t.TempDir(), "hostler.yaml"), Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Notice: func(key, text string) { warnings[key] = text },
	}
	for _, step := range []struct{ text, want string }{{"nme: x\n", "nme"}, {"harvest: everything\n", ""}, {"nme: x\n", "nme"}, {"", ""}} {
		if step.text == "" {
			if err := os.Remove(c.Path); err != nil {
				t.Fatal(err)
			}
		} else {
			writeFile(t, c.Path, step.text)
		}
		_, _ = c.read() // some texts are invalid
		if got := warnings["configuration-warnings"]; strings.Contains(got, "nme") != (step.want != "") {
			t.Errorf("%q: %q", step.text, got)
		}
	}
}

// A pipe in place of the file is reported, and not opened, because it may have no writer.
func TestPipeAsConfiguration(t *testing.T) {
	f := follow(t, "harvest: none\n")
	if err := errors.Join(syscall.Mkfifo(f.file+".new", 0o600), os.Rename(f.file+".new", f.file)); err != nil {
		t.Fatal(err)
	}
	f.noticed(f.file + " is not used: cannot read the configuration: " + f.file + " is a pipe, not a file")
	f.save("harvest: all\n")
	f.await(func(c spec.Config) bool { return c.Harvest == "all" })
}
