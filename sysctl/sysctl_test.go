package sysctl_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/sysctl"
)

const (
	instances = "fs/inotify/max_user_instances"
	forward   = "net/ipv4/conf/eth0.100/forwarding"
	ports     = "net/ipv4/ip_local_port_range"
)

// host is a folder with the kernel's parameters as files.
type host struct {
	t *testing.T
	p paths.Paths
	m *sysctl.Manager
}

func newHost(t *testing.T) *host {
	t.Helper()
	root := t.TempDir()
	h := &host{t: t, p: paths.New(root, "", "", "")}
	for _, dir := range []string{filepath.Dir(h.p.SysctlDropIn()), h.p.StateDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.m = sysctl.New(h.p, slog.New(slog.DiscardHandler))
	h.set(instances, "128")
	h.set(forward, "0")
	h.set(ports, "32768\t60999")
	return h
}

func (h *host) set(name, value string) {
	h.t.Helper()
	file := filepath.Join(h.p.ProcSys(), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) apply(owner string, settings ...sysctl.Setting) []string {
	h.t.Helper()
	changed, err := h.m.Apply(h.t.Context(), owner, settings)
	if err != nil {
		h.t.Fatal(err)
	}
	return changed
}

func (h *host) want(name, value string) {
	h.t.Helper()
	if got, err := h.m.Read(name); err != nil || got != value {
		h.t.Errorf("%s is %q, %v; want %q", name, got, err, value)
	}
}

func (h *host) dropIn() string {
	data, err := os.ReadFile(h.p.SysctlDropIn())
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	return string(data)
}

func (h *host) wantDropIn(lines ...string) {
	h.t.Helper()
	var got []string
	for line := range strings.Lines(h.dropIn()) {
		if !strings.HasPrefix(line, "# Kernel param") && !strings.HasPrefix(line, "# own") {
			got = append(got, strings.TrimSuffix(line, "\n"))
		}
	}
	if !slices.Equal(got, lines) {
		h.t.Errorf("drop-in holds %q, want %q", got, lines)
	}
}

// C11 Z11: parameters take effect at once, and after a boot by hostler's own
// file. Applying again changes nothing, and a withdrawn setting gets its former
// value.
func TestApplyAndWithdraw(t *testing.T) {
	h := newHost(t)
	settings := []sysctl.Setting{{Name: ports, Value: "1024 60999"}, {Name: forward, Value: "1"}, {Name: instances, Value: "1024", AtLeast: true}}
	if ok, why := h.m.Satisfied(settings); ok || !strings.Contains(why, ports) {
		t.Errorf("satisfied %v, %s", ok, why)
	}
	if got := h.apply("net", settings...); !slices.Equal(got, []string{instances, forward, ports}) {
		t.Errorf("changed %q", got)
	}
	if ok, why := h.m.Satisfied(settings); !ok {
		t.Errorf("not satisfied: %s", why)
	}
	h.want(ports, "1024 60999")
	h.wantDropIn(instances+" = 1024", forward+" = 1", ports+" = 1024 60999")

	// Applying the same again writes neither file nor kernel.
	old := times(t, h)
	if got := h.apply("net", settings...); got != nil {
		t.Errorf("second apply changed %q", got)
	}
	if now := times(t, h); !slices.Equal(old, now) {
		t.Errorf("second apply wrote files")
	}

	if got := h.apply("net", settings[0]); !slices.Equal(got, []string{instances, forward}) {
		t.Errorf("changed %q", got)
	}
	h.want(forward, "0")
	h.want(instances, "128")
	h.apply("net")
	h.want(ports, "32768 60999")
	for _, file := range []string{h.p.SysctlDropIn(), h.p.SysctlState()} {
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", file, err)
		}
	}
}

// A boot does not set what is safe only beside the firewall table.
func TestRouteLocalnetIsNotSetAtBoot(t *testing.T) {
	const local = "net/ipv4/conf/br-lan/route_localnet"
	h := newHost(t)
	h.set(local, "0")
	settings := []sysctl.Setting{{Name: local, Value: "1"}, {Name: forward, Value: "1"}}
	h.apply("net", settings...)
	h.want(local, "1")
	if ok, why := h.m.Satisfied(settings); !ok {
		t.Error(why)
	}
	if again := h.apply("net", settings...); len(again) > 0 {
		t.Errorf("changed again: %v", again)
	}
	h.wantDropIn(forward + " = 1")
}

func times(t *testing.T, h *host) []string {
	t.Helper()
	var all []string
	for _, file := range []string{h.p.SysctlDropIn(), h.p.SysctlState(), filepath.Join(h.p.ProcSys(), ports)} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.ModTime().String())
	}
	return all
}

// Holds is true exactly if Apply would change nothing.
func TestHolds(t *testing.T) {
	h := newHost(t)
	settings := []sysctl.Setting{{Name: forward, Value: "1"}, {Name: instances, Value: "128"}}
	if h.m.Holds("o", settings) {
		t.Error("before Apply")
	}
	for name, spoil := range map[string]func(){
		"another value": func() { h.set(forward, "0") },
		"no file": func() {
			if err := os.Remove(h.p.SysctlDropIn()); err != nil {
				t.Fatal(err)
			}
		},
		"no record": func() {
			if err := os.Remove(h.p.SysctlState()); err != nil {
				t.Fatal(err)
			}
			h.set(forward, "0")
		},
	} {
		h.apply("o", settings...)
		if !h.m.Holds("o", settings) || h.m.Holds("o", settings[1:]) || h.m.Holds("o", nil) {
			t.Errorf("before %s", name)
		}
		spoil()
		if h.m.Holds("o", settings) {
			t.Errorf("with %s", name)
		}
	}
	h.apply("o")
	if !h.m.Holds("o", nil) {
		t.Error("without settings")
	}
}

func TestLimitsAreNeverLowered(t *testing.T) {
	h := newHost(t)
	limit := sysctl.Setting{Name: instances, Value: "1024", AtLeast: true}
	h.set(instances, "8192")
	if got := h.apply("lxd", limit); got != nil {
		t.Errorf("changed %q", got)
	}
	h.want(instances, "8192")
	h.wantDropIn() // another process owns the value: a line of ours could lower it at the next boot
	h.set(instances, "128")
	h.apply("lxd", limit)
	h.want(instances, "1024")
	h.wantDropIn(instances + " = 1024")
	h.set(instances, "4096")
	h.apply("lxd", limit)
	h.want(instances, "4096")
	h.wantDropIn()
	h.apply("lxd")
	h.want(instances, "4096")
}

func TestOwnersDoNotUndoEachOther(t *testing.T) {
	h := newHost(t)
	h.apply("a", sysctl.Setting{Name: instances, Value: "512", AtLeast: true}, sysctl.Setting{Name: forward, Value: "1"})
	h.apply("b", sysctl.Setting{Name: instances, Value: "1024", AtLeast: true})
	h.want(instances, "1024")
	h.apply("b")
	h.want(forward, "1")
	if _, err := h.m.Apply(t.Context(), "c", []sysctl.Setting{{Name: forward, Value: "0"}}); !fault.Is(err, fault.Conflict) {
		t.Errorf("got %v", err)
	}
	h.want(forward, "1")
}

func TestForeignChangeIsNotPutBack(t *testing.T) {
	h := newHost(t)
	h.apply("a", sysctl.Setting{Name: ports, Value: "1024 60999"})
	h.set(ports, "2000 3000")
	h.apply("a")
	h.want(ports, "2000 3000")
}

func TestForeignLinesAreKept(t *testing.T) {
	h := newHost(t)
	if err := os.WriteFile(h.p.SysctlDropIn(), []byte("# a note\nvm.swappiness = 10\nnet.ipv4.conf.eth0/100.forwarding=0"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.apply("a", sysctl.Setting{Name: forward, Value: "1"})
	h.wantDropIn("# a note", "vm.swappiness = 10", forward+" = 1")
	h.apply("a")
	h.wantDropIn("# a note", "vm.swappiness = 10")
}

func TestBadNamesAndValues(t *testing.T) {
	h := newHost(t)
	for _, s := range []sysctl.Setting{
		{Name: "", Value: "1"},
		{Name: "net.ipv4.ip_forward", Value: "1"},
		{Name: "../etc/passwd", Value: "1"},
		{Name: "/net/ipv4", Value: "1"},
		{Name: "-net/ipv4", Value: "1"},
		{Name: "net/ip v4", Value: "1"},
		{Name: forward, Value: ""},
		{Name: forward, Value: "1\nkernel.panic = 1"},
	} {
		if _, err := h.m.Apply(t.Context(), "a", []sysctl.Setting{s}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if _, err := h.m.Apply(t.Context(), "a", []sysctl.Setting{{Name: "net/ipv4/absent", Value: "1"}}); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("an absent parameter: %v", err)
	}
	if h.dropIn() != "" {
		t.Errorf("drop-in %q", h.dropIn())
	}
}

func TestDamagedStateIsNotOverwritten(t *testing.T) {
	h := newHost(t)
	for _, text := range []string{"{", `{"x":null}`, `{"fs/inotify/max_user_instances":null}`} {
		if err := os.WriteFile(h.p.SysctlState(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := h.m.Apply(t.Context(), "a", []sysctl.Setting{{Name: forward, Value: "1"}}); !fault.Is(err, fault.NeedsOperator) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// ReleaseInUse keeps a value that a new user relies on. A value whose users did
// without it before is restored.
func TestLeaveKeepsValuesOfNewUsers(t *testing.T) {
	h := newHost(t)
	want := sysctl.Setting{Name: forward, Value: "1", Users: []string{"docker0"}}
	leave := func(owner string, users, since []string) {
		t.Helper()
		if got, err := h.m.ReleaseInUse(t.Context(), owner, forward, users); err != nil || !slices.Equal(got, since) {
			t.Errorf("left to %q, %v; want %q", got, err, since)
		}
	}
	leave("net", []string{"virbr0"}, nil) // no owner has it yet
	h.apply("net", want)
	want.Users = []string{"docker0", "virbr0"} // only the first users are remembered
	h.apply("net", want)
	leave("net", []string{"docker0"}, nil)
	leave("other", []string{"virbr0"}, nil)
	h.apply("net")
	h.want(forward, "0")

	want.Users = nil
	h.apply("net", want)
	h.apply("other", want)
	leave("net", []string{"virbr0"}, nil) // other owners keep it
	h.apply("other")
	leave("net", []string{"docker0", "virbr0"}, []string{"docker0", "virbr0"})
	h.wantDropIn()
	leave("net", []string{"docker0", "virbr0"}, nil)
	h.apply("net")
	h.want(forward, "1")
	h.apply("net", want)
	h.apply("net")
	h.want(forward, "1") // another process owns it now
}
