package packaging_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/internal/run/runtest"
	"hostler/packaging"
)

// host is a Debian host made of files: apt-get and dpkg change the status file.
type host struct {
	t       *testing.T
	p       paths.Paths
	fake    *runtest.Fake
	apt     *packaging.Apt
	states  map[string]string // package -> third word of its status
	archive map[string]bool   // the packages of the mirror
	known   map[string]bool   // the packages in the lists
	said    []string
}

func newHost(t *testing.T) *host {
	t.Helper()
	return newHostHeld(t, nil)
}

func newHostHeld(t *testing.T, hold *packaging.Hold) *host {
	t.Helper()
	h := &host{
		t: t, p: paths.New(t.TempDir(), "", "", ""), fake: runtest.NewFake(),
		states:  map[string]string{"dpkg": "installed"},
		archive: map[string]bool{"toy": true, "tool": true},
		known:   map[string]bool{"toy": true, "tool": true},
	}
	for _, dir := range []string{filepath.Dir(h.p.DpkgStatus()), h.p.DpkgUpdates(), h.p.AptLists(), h.p.StateDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.write()
	h.lists()
	h.fake.Handle("apt-get", h.aptGet)
	h.fake.Handle("dpkg", h.dpkg)
	h.apt = packaging.NewApt(h.p, h.fake, h.fake, "http://proxy:3142", hold, slog.New(slog.DiscardHandler))
	return h
}

func (h *host) write() {
	var b strings.Builder
	for name, state := range h.states {
		fmt.Fprintf(&b, "Package: %s\nStatus: install ok %s\nArchitecture: amd64\nDescription: x\n Status: install ok installed\n\n", name, state)
	}
	if err := os.WriteFile(h.p.DpkgStatus(), []byte(b.String()), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) lists() {
	if err := os.WriteFile(filepath.Join(h.p.AptLists(), "mirror_dists_x_Packages.lz4"), nil, 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) aptGet(_ context.Context, c run.Command) (run.Result, error) {
	if !c.NoKill || !slices.Contains(c.Env, "DEBIAN_FRONTEND=noninteractive") || !slices.Contains(c.Args, "Dpkg::Options::=--force-confold") ||
		strings.Contains(c.String(), "proxy:3142") || !slices.Contains(c.Args, "--config-file") {
		h.t.Errorf("unsafe call: %s with %q", c, c.Env)
	}
	if slices.Contains(c.Args, "update") {
		h.known = h.archive
		h.lists()
		return run.Result{}, nil
	}
	if !slices.Contains(c.Args, "--no-install-recommends") {
		h.t.Errorf("installs recommended packages: %s", c)
	}
	names := c.Args[slices.Index(c.Args, "--")+1:]
	for _, name := range names {
		if !h.known[name] {
			return runtest.Exit(c, 100, "E: Unable to locate package "+name)
		}
		if !h.archive[name] {
			return runtest.Exit(c, 100, "E: Unable to fetch some archives")
		}
	}
	for _, line := range []string{
		"dlstatus:1:0.0000:Retrieving file 1 of 1", "dlstatus:1:1.0000:Retrieving file 1 of 1", "dlstatus:1:50.0000:Retrieving file 1 of 1",
		"pmstatus:toy:20.0000:Unpacking toy (amd64)", "pmstatus:toy:60.0000:Configuring toy (amd64)", "nonsense",
	} {
		c.OnStatus(line)
	}
	for _, name := range names {
		if h.states[name] == "failing" {
			c.OnStatus("pmerror:" + name + ":60.0:installed " + name + " package post-installation script subprocess returned error exit status 1")
			return runtest.Exit(c, 100, "E: Sub-process /usr/bin/dpkg returned an error code (1)")
		}
		h.states[name] = "installed"
	}
	h.write()
	return run.Result{}, nil
}

func (h *host) dpkg(_ context.Context, c run.Command) (run.Result, error) {
	for name, state := range h.states {
		if state == "half-configured" || state == "triggers-pending" {
			h.states[name] = "installed"
		}
	}
	h.write()
	return run.Result{}, nil
}

func (h *host) install(names ...string) error {
	h.said = nil
	return h.apt.Install(h.t.Context(), names, func(s string) { h.said = append(h.said, s) })
}

func (h *host) calls() []string {
	var all []string
	for _, c := range h.fake.Calls() {
		verb := "install"
		for _, v := range []string{"update", "--configure", "--fix-broken"} {
			if slices.Contains(c.Args, v) {
				verb = v
			}
		}
		all = append(all, c.Name()+" "+verb)
	}
	h.fake.Reset()
	return all
}

func (h *host) wantCalls(want ...string) {
	h.t.Helper()
	if got := h.calls(); !slices.Equal(got, want) {
		h.t.Errorf("ran %q, want %q", got, want)
	}
}

func TestInstallOnceThenNoCall(t *testing.T) {
	h := newHost(t)
	if err := h.install("toy", "tool"); err != nil {
		t.Fatal(err)
	}
	h.wantCalls("apt-get install")
	want := []string{
		"installing toy, tool",
		"downloading packages for toy, tool (0 %)",
		"downloading packages for toy, tool (50 %)",
		"installing toy, tool: unpacking toy (amd64) (20 %)",
		"installing toy, tool: configuring toy (amd64) (60 %)",
	}
	if !slices.Equal(h.said, want) {
		t.Errorf("said %q", h.said)
	}
	if h.apt.Unfinished() {
		t.Error("unfinished after success")
	}
	if err := h.install("toy", "tool"); err != nil {
		t.Fatal(err)
	}
	h.wantCalls()
}

func TestListsAreFetchedOnlyWhenNeeded(t *testing.T) {
	h := newHost(t)
	h.known = map[string]bool{}
	if err := h.install("toy"); err != nil {
		t.Fatal(err)
	}
	h.wantCalls("apt-get install", "apt-get update", "apt-get install")

	if err := h.install("absent"); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "cannot install absent: ") || !strings.Contains(err.Error(), "Unable to locate package absent") {
		t.Errorf("got %v", err)
	}
	h.wantCalls("apt-get install", "apt-get update", "apt-get install")

	old := time.Now().Add(-30 * 24 * time.Hour)
	if err := os.Chtimes(filepath.Join(h.p.AptLists(), "mirror_dists_x_Packages.lz4"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := h.install("tool"); err != nil {
		t.Fatal(err)
	}
	h.wantCalls("apt-get update", "apt-get install")
}

func TestMissingListsAreFetchedFirst(t *testing.T) {
	h := newHost(t)
	if err := os.RemoveAll(h.p.AptLists()); err != nil {
		t.Fatal(err)
	}
	h.fake.Fail("apt-get", 100, "E: The network is unreachable")
	err := h.install("toy")
	if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "cannot fetch the lists of packages") || !strings.Contains(err.Error(), "network is unreachable") {
		t.Errorf("got %v", err)
	}
	h.wantCalls("apt-get update")
}

func TestFailingPackageIsNamed(t *testing.T) {
	h := newHost(t)
	h.states["toy"] = "failing"
	h.write()
	err := h.install("toy")
	if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "cannot install toy: toy: installed toy package post-installation script") {
		t.Errorf("got %v", err)
	}
	h.wantCalls("apt-get install")
	if !h.apt.Unfinished() {
		t.Error("not unfinished after a failure")
	}
	h.states["toy"] = "not-installed" // mended
	h.write()
	if err := h.install("toy"); err != nil || h.apt.Unfinished() {
		t.Errorf("after mending: %v", err)
	}
}

func TestInterruptedInstallationIsFinishedFirst(t *testing.T) {
	h := newHost(t)
	h.states["toy"] = "half-configured"
	h.write()
	if err := h.install("toy"); err != nil {
		t.Fatal(err)
	}
	h.wantCalls("dpkg --configure")
	if h.said[0] != "finishing an interrupted installation of packages: toy" {
		t.Errorf("said %q", h.said)
	}
}

// A killed agent left no package missing but another package half-way.
func TestUnfinishedInstallationIsMended(t *testing.T) {
	h := newHost(t)
	h.states["toy"], h.states["man-db"] = "installed", "triggers-pending"
	h.write()
	if err := h.install("toy"); err != nil {
		t.Fatal(err)
	}
	h.wantCalls() // not this agent's installation
	if err := os.WriteFile(filepath.Join(h.p.StateDir, "installing-packages"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.install("toy"); err != nil {
		t.Fatal(err)
	}
	h.wantCalls("dpkg --configure")
	if h.apt.Unfinished() {
		t.Error("still unfinished")
	}
}

// Finish installs nothing. It tells a package that dpkg knows, even half-way, from
// one that dpkg does not know.
func TestFinish(t *testing.T) {
	mark := func(h *host) {
		if err := os.WriteFile(filepath.Join(h.p.StateDir, "installing-packages"), []byte("tool\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for state, ours := range map[string]bool{"not-installed": false, "installed": true, "half-configured": true} {
		h := newHost(t)
		h.states["toy"], h.states["man-db"] = state, "triggers-pending"
		h.write()
		for _, program := range []string{"dpkg", "apt-get"} { // they cannot finish the packages
			h.fake.Handle(program, func(_ context.Context, c run.Command) (run.Result, error) { return runtest.Exit(c, 100, "E: broken") })
		}
		for _, marked := range []bool{false, true} {
			if marked {
				mark(h)
			}
			got, err := packaging.Finish(t.Context(), h.apt, []string{"toy"}, func(string) {})
			if err != nil || got != (ours && marked) || h.apt.Unfinished() || h.states["tool"] != "" {
				t.Errorf("%s, marked %v: ours %v, %v; packages %v", state, marked, got, err, h.states)
			}
		}
	}
}

func TestUnavailable(t *testing.T) {
	h := newHost(t)
	h.fake.Print("apt-cache", "toy:\n  Installed: (none)\n  Candidate: 1.2-3\n  Version table:\n     1.2-3 100\n        100 http://mirror x/main amd64 Packages\n"+
		"virtual:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n")
	got, err := h.apt.Unavailable(t.Context(), []string{"toy", "virtual", "unknown"})
	if err != nil || !slices.Equal(got, []string{"virtual", "unknown"}) {
		t.Errorf("unavailable are %q, %v", got, err)
	}
	if err := os.RemoveAll(h.p.AptLists()); err != nil {
		t.Fatal(err)
	}
	if got, err := h.apt.Unavailable(t.Context(), []string{"unknown"}); err != nil || len(got) != 0 {
		t.Errorf("without lists: %q, %v", got, err)
	}
}

// Lists that exist are not fetched again.
func TestFetchLists(t *testing.T) {
	h := newHost(t)
	fetch := func() {
		t.Helper()
		if err := h.apt.FetchLists(t.Context(), func(string) {}); err != nil {
			t.Fatal(err)
		}
	}
	fetch()
	h.wantCalls()
	if err := os.RemoveAll(h.p.AptLists()); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(h.p.AptLists(), 0o755); err != nil {
		t.Fatal(err)
	}
	fetch()
	h.wantCalls("apt-get update")
}
