package kvm_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/initialisers/kvm"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/internal/run/runtest"
)

// packages is a package manager with a given result.
type packages struct {
	missing    []string
	unfinished bool
	installed  func() // runs when Install succeeds
	err        error
	// unavailable are the packages that no repository offers.
	unavailable []string
	names       []string
}

func (p *packages) Missing(names []string) ([]string, error) {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(p.missing, name) }), nil
}
func (p *packages) Unfinished(...string) bool { return p.unfinished }
func (p *packages) Unavailable(context.Context, []string) ([]string, error) {
	return p.unavailable, nil
}

func (p *packages) FetchLists(context.Context, func(string)) error { return nil }

func (p *packages) Install(_ context.Context, names []string, progress func(string)) error {
	p.names = append(p.names, names...)
	if len(names) == 0 {
		p.unfinished = false
		return nil
	}
	progress("downloading " + names[0])
	if p.err != nil {
		p.unfinished = true
		return p.err
	}
	p.unfinished = false
	if p.installed != nil {
		p.installed()
	}
	return nil
}

type host struct {
	t       *testing.T
	p       paths.Paths
	run     *runtest.Fake
	pkgs    *packages
	libvirt *fakeLibvirt
	opts    kvm.Options
	said    []string
}

const emulator = "qemu-system-x86_64"

func newHost(t *testing.T) *host {
	t.Helper()
	root := t.TempDir()
	h := &host{t: t, p: paths.New(root, "", filepath.Join(root, "state"), filepath.Join(root, "run-hostler")), run: runtest.NewFake(), pkgs: &packages{}, libvirt: newFakeLibvirt(t)}
	h.file("/etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n")
	h.file(filepath.Join("/run-hostler", "x"), "")
	h.file("/run/x", "")
	h.opts = kvm.Options{
		Runner: h.run, Packages: h.pkgs, Paths: h.p, Socket: h.libvirt.socket, Accelerator: kvm.AcceleratorTCG, StartTimeout: 10 * time.Second,
	}
	return h
}

// file makes a file of the host.
func (h *host) file(name, text string) {
	h.t.Helper()
	file := filepath.Join(h.p.Root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

// programs makes the programs that the packages install.
func (h *host) programs() {
	for _, program := range []string{paths.Libvirtd, "/usr/bin/" + emulator, paths.QemuImg} {
		h.file(program, "")
	}
}

func (h *host) initialise() error {
	h.said = nil
	return kvm.New(h.opts).Initialise(h.t.Context(), func(s string) { h.said = append(h.said, s) })
}

func (h *host) satisfied() (bool, string) { return kvm.New(h.opts).Satisfied(h.t.Context()) }

func (h *host) ran() (all []string) {
	for _, c := range h.run.Calls() {
		all = append(all, strings.Join(append([]string{c.Name()}, c.Args...), " "))
	}
	h.run.Reset()
	return all
}

// C6 C8: without systemd the initialiser installs packages, starts the daemons
// directly, and makes pool and network. A second run changes nothing.
func TestFromNothingWithoutSystemd(t *testing.T) {
	h := newHost(t)
	h.pkgs.installed = h.programs
	daemon := func(_ context.Context, c run.Command) (run.Result, error) {
		if !strings.HasPrefix(c.Detach, h.p.Host("/var/log/libvirt/")) {
			t.Errorf("%s logs to %q", c.Name(), c.Detach)
		}
		if c.Name() == "libvirtd" {
			h.libvirt.listen()
		}
		return run.Result{PID: os.Getpid()}, nil
	}
	h.run.Handle("virtlogd", daemon)
	h.run.Handle("libvirtd", daemon)
	if ok, why := h.satisfied(); ok || why != paths.Libvirtd+" is not there" {
		t.Errorf("satisfied %v, %s", ok, why)
	}
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	if got := h.ran(); !slices.Equal(got, []string{"virtlogd", "libvirtd --timeout 0"}) {
		t.Errorf("ran %q", got)
	}
	if !slices.Contains(h.pkgs.names, "libvirt-daemon-system") || !slices.Contains(h.pkgs.names, "qemu-utils") || h.said[0] != "installing libvirt and QEMU" {
		t.Errorf("installed %v, said %q", h.pkgs.names, h.said)
	}
	want := "define pool default, start pool default, autostart pool default, define network default, start network default, autostart network default"
	if got := h.libvirt.String(); got != want {
		t.Errorf("libvirt was told %q", got)
	}
	if text := h.libvirt.pools["default"].xml; !strings.Contains(text, "<path>"+h.p.Host(paths.LibvirtImages)+"</path>") {
		t.Errorf("pool %s", text)
	}
	if text := h.libvirt.networks["default"].xml; !strings.Contains(text, "mode=\"nat\"") || !strings.Contains(text, "<range start=\"192.168.") {
		t.Errorf("network %s", text)
	}
	if ok, why := h.satisfied(); !ok {
		t.Errorf("not satisfied: %s", why)
	}
	if err := h.initialise(); err != nil || h.ran() != nil || h.libvirt.String() != want || len(h.said) != 0 {
		t.Errorf("the second time: %v, said %q, told %q", err, h.said, h.libvirt)
	}
}

// C22: steps of pool and network that are done are skipped.
func TestStepsThatAreDoneAreSkipped(t *testing.T) {
	for have, want := range map[[2]object]string{
		{{xml: "theirs", runs: true, starts: true}, {xml: "theirs", runs: true, starts: true}}: "",
		{{xml: "theirs", starts: true}, {xml: "theirs", runs: true, starts: true}}:             "start pool default",
		{{xml: "theirs", runs: true}, {xml: "theirs", runs: true, starts: true}}:               "autostart pool default",
		{{xml: "theirs", runs: true, starts: true}, {xml: "theirs", starts: true}}:             "start network default",
		{{xml: "theirs", runs: true, starts: true}, {xml: "theirs", runs: true}}:               "autostart network default",
	} {
		h := newHost(t)
		h.programs()
		h.libvirt.pools["default"], h.libvirt.networks["default"] = &have[0], &have[1]
		h.libvirt.listen()
		if err := h.initialise(); err != nil {
			t.Fatal(err)
		}
		if got := h.libvirt.String(); got != want || h.libvirt.pools["default"].xml != "theirs" {
			t.Errorf("%+v: told %q, want %q", have, got, want)
		}
		if got := h.ran(); got != nil {
			t.Errorf("ran %q", got)
		}
	}
}

// A network that was set up once and that the administrator stopped or removed
// stays so, after each start of the agent and after a boot. The pool is
// repaired, and a newly installed libvirt gets its network.
func TestStoppedNetworkStaysStopped(t *testing.T) {
	h := newHost(t)
	h.programs()
	h.libvirt.listen()
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	first := h.libvirt.String()
	for what, meddle := range map[string]func(){
		"stopped": func() { h.libvirt.networks["default"] = &object{xml: "theirs"} },
		"removed": func() { delete(h.libvirt.networks, "default") },
	} {
		meddle()
		if ok, why := h.satisfied(); !ok {
			t.Errorf("%s: %s", what, why)
		}
		if err := os.Remove(h.p.Accelerator()); err != nil { // as a boot does
			t.Fatal(err)
		}
		h.libvirt.pools["default"].runs = false
		if err := h.initialise(); err != nil {
			t.Fatal(err)
		}
		if got := h.libvirt.String(); !strings.HasPrefix(got, first) || strings.Contains(got[len(first):], "network") || !h.libvirt.pools["default"].runs {
			t.Errorf("%s: told %q", what, got)
		}
	}
	if err := os.Remove(filepath.Join(h.p.Root, paths.Libvirtd)); err != nil {
		t.Fatal(err)
	}
	h.pkgs.installed = h.programs
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	if o := h.libvirt.networks["default"]; o == nil || !o.runs || !o.starts {
		t.Errorf("installed anew: %+v", o)
	}
}

// A pool of another name gets a folder beside libvirt's own. The error about a
// network that cannot start names the remedy.
func TestOtherPoolAndRefusals(t *testing.T) {
	h := newHost(t)
	h.programs()
	h.opts.Pool = "fast"
	h.libvirt.listen()
	h.libvirt.refuse[procNetCreate] = "the subnet is in use"
	err := h.initialise()
	if err == nil || !strings.Contains(err.Error(), "the subnet is in use") || !strings.Contains(err.Error(), "virsh net-edit default") {
		t.Errorf("got %v", err)
	}
	if o := h.libvirt.pools["fast"]; o == nil || !strings.Contains(o.xml, paths.LibvirtPools+"fast") {
		t.Errorf("pools %+v", h.libvirt.pools)
	}
	if ok, why := h.satisfied(); ok || !strings.Contains(why, `network "default" does not run`) {
		t.Errorf("satisfied %v, %s", ok, why)
	}
	delete(h.libvirt.refuse, procNetCreate)
	if err := h.initialise(); err != nil {
		t.Error(err)
	}
}

func TestUnderSystemdUnitsAreStarted(t *testing.T) {
	h := newHost(t)
	h.programs()
	if err := os.MkdirAll(h.p.SystemdRunning(), 0o755); err != nil {
		t.Fatal(err)
	}
	h.run.Fail("systemctl", 1, "Job for libvirtd.socket failed.")
	if err := h.initialise(); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "cannot start libvirt: cannot run systemctl: exit status 1: Job for libvirtd.socket failed.") {
		t.Errorf("got %v", err)
	}
	h.run.Reset()
	h.run.Handle("systemctl", func(context.Context, run.Command) (run.Result, error) {
		h.libvirt.listen()
		return run.Result{}, nil
	})
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	if got := h.ran(); !slices.Equal(got, []string{"systemctl start virtlogd.socket libvirtd.socket libvirtd.service"}) {
		t.Errorf("ran %q", got)
	}
}

// C4: a failure is reported with its cause, and the next try succeeds.
func TestFailingPackageThenRetry(t *testing.T) {
	h := newHost(t)
	h.libvirt.listen()
	h.pkgs.err = fault.New(fault.Transient, "cannot install qemu-utils: postinst failed")
	if err := h.initialise(); !fault.Is(err, fault.Transient) || err.Error() != "cannot install qemu-utils: postinst failed" {
		t.Errorf("got %v", err)
	}
	if ok, why := h.satisfied(); ok || why != "an installation of packages was interrupted" {
		t.Errorf("satisfied %v, %s", ok, why)
	}
	h.pkgs.err = nil
	if err := h.initialise(); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "is not there after its packages were installed") {
		t.Errorf("got %v", err)
	}
	h.pkgs.installed = h.programs
	if err := h.initialise(); err != nil {
		t.Error(err)
	}
}

// The initialiser waits for a hanging daemon, within limits, and starts no
// second daemon, which would only disturb it.
func TestHangingDaemonIsNotStartedTwice(t *testing.T) {
	h := newHost(t)
	h.programs()
	h.opts.StartTimeout = 50 * time.Millisecond
	h.run.Print("virtlogd", "")
	listener, err := net.Listen("unix", h.libvirt.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	if err := h.initialise(); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "cannot start libvirt: no answer within 50ms") {
		t.Errorf("got %v", err)
	}
	if got := h.ran(); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "libvirtd") }) {
		t.Errorf("ran %q", got)
	}
}

// C3: the initialiser asks libvirt for QEMU's capabilities once and says so in
// its progress. While libvirt has not answered, a repeated setup does not ask
// again and fails; later it succeeds.
func TestCapabilitiesAreAskedOnce(t *testing.T) {
	h := newHost(t)
	h.programs()
	h.libvirt.thinking = make(chan struct{})
	h.libvirt.listen()
	h.opts.CapabilitiesTimeout = 50 * time.Millisecond
	i := kvm.New(h.opts)
	initialise := func() error { return i.Initialise(t.Context(), func(s string) { h.said = append(h.said, s) }) }
	if err := initialise(); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "cannot read QEMU's abilities: libvirt gave no answer within 50ms") {
		t.Errorf("error %v", err)
	}
	if last := h.said[len(h.said)-1]; !strings.Contains(last, "QEMU's abilities") {
		t.Errorf("said %q", h.said)
	}
	for range 3 {
		if err := initialise(); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "is not repeated") {
			t.Errorf("tried again: %v", err)
		}
	}
	if ok, _ := i.Satisfied(t.Context()); ok || h.libvirt.asked != 1 {
		t.Errorf("satisfied %v after %d questions", ok, h.libvirt.asked)
	}
	close(h.libvirt.thinking)
	deadline := time.Now().Add(10 * time.Second)
	for err := initialise(); err != nil; err = initialise() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if ok, why := i.Satisfied(t.Context()); !ok {
		t.Errorf("not satisfied: %s", why)
	}
	asked := h.libvirt.asked
	if err := initialise(); err != nil || h.libvirt.asked != asked {
		t.Errorf("the next time: %v, asked %d times", err, h.libvirt.asked-asked)
	}
}

// A libvirt that is installed and does not answer is silent; a host without it
// is not.
func TestSilentLibvirt(t *testing.T) {
	h := newHost(t)
	if message, mend := kvm.New(h.opts).Silent(t.Context()); message+mend != "" {
		t.Errorf("without libvirt: %q, %q", message, mend)
	}
	h.programs()
	message, mend := kvm.New(h.opts).Silent(t.Context())
	h.pkgs.unfinished = true
	if m, _ := kvm.New(h.opts).Silent(t.Context()); m != message {
		t.Errorf("with an interrupted installation: %q", m)
	}
	h.pkgs.unfinished = false
	if _, why := h.satisfied(); message != "libvirt does not answer" || why != message+"; "+mend {
		t.Errorf("%q, %q; not satisfied: %s", message, mend, why)
	}
	h.libvirt.listen()
	if message, mend := kvm.New(h.opts).Silent(t.Context()); message+mend != "" {
		t.Errorf("with libvirt: %q, %q", message, mend)
	}
}
