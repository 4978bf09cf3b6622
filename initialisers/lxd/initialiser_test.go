package lxd_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/initialisers/lxd"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/internal/run/runtest"
	"hostler/sysctl"
)

// packages is a package manager of which only the outcome matters here.
type packages struct {
	missing    []string
	halfway    []string // the missing packages that dpkg left half-way
	unfinished bool
	installed  func() // runs when Install succeeds
	err        error
	// unavailable are the packages that no repository offers. It is known
	// unless unlisted is true, because the lists of packages are missing.
	unavailable  []string
	unlisted     bool
	names        []string // of the last installation
	calls, asked int
}

func (p *packages) Missing(names []string) ([]string, error) { return among(names, p.missing), nil }
func (p *packages) Unfinished(names ...string) bool {
	return p.unfinished || len(among(names, p.halfway)) > 0
}

func (p *packages) Unavailable(_ context.Context, names []string) ([]string, error) {
	p.asked++
	if p.unlisted {
		return nil, nil
	}
	return among(names, p.unavailable), nil
}

func (p *packages) FetchLists(context.Context, func(string)) error {
	p.unlisted = false
	return nil
}

// among returns the names that the list has.
func among(names, list []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(list, name) })
}

func (p *packages) Install(_ context.Context, names []string, progress func(string)) error {
	p.calls++
	p.names = names
	if len(names) == 0 {
		p.unfinished = false
		return nil
	}
	progress("downloading " + names[0])
	if p.err != nil {
		p.unfinished = true
		return p.err
	}
	p.missing, p.halfway, p.unfinished = nil, nil, false
	if p.installed != nil {
		p.installed()
	}
	return nil
}

// kernel holds limits that are writable, or not if they belong to another host.
type kernel struct {
	low      bool
	readOnly bool
	applied  int
}

func (k *kernel) Satisfied([]sysctl.Setting) (bool, string) { return !k.low, "limits are low" }
func (k *kernel) Writable(string) bool                      { return !k.readOnly }
func (k *kernel) Apply(_ context.Context, _ string, settings []sysctl.Setting) ([]string, error) {
	k.applied += len(settings)
	if !k.low || len(settings) == 0 {
		return nil, nil
	}
	k.low = false
	return []string{"x"}, nil
}

type host struct {
	t      *testing.T
	p      paths.Paths
	run    *runtest.Fake
	pkgs   *packages
	kernel *kernel
	lxd    *fakeLXD
	opts   lxd.Options
	said   []string
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, p: paths.New(t.TempDir(), "", "", ""), run: runtest.NewFake(), pkgs: &packages{}, kernel: &kernel{}, lxd: newFakeLXD(t)}
	for name, text := range map[string]string{"/etc/os-release": "ID=debian\nVERSION_ID=\"12\"\n", "/proc/net/route": ""} {
		file := h.p.Host(name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h.opts = lxd.Options{
		Runner: h.run, Packages: h.pkgs, Sysctl: h.kernel, Paths: h.p,
		Logger: slog.New(slog.DiscardHandler), StartTimeout: 10 * time.Second,
	}
	return h
}

func (h *host) initialise() error {
	h.said = nil
	return lxd.New(h.opts).Initialise(h.t.Context(), func(s string) { h.said = append(h.said, s) })
}

func (h *host) satisfied() (bool, string) { return lxd.New(h.opts).Satisfied(h.t.Context()) }

func (h *host) programs() []string {
	var all []string
	for _, c := range h.run.Calls() {
		all = append(all, strings.Join(append([]string{c.Name()}, c.Args...), " "))
	}
	h.run.Reset()
	return all
}

// C6: without systemd, packages come first, then the daemon is started
// directly, then it is configured; a second run does nothing. L5: its bridge
// has an address and leads out. Z30: only its socket listens.
func TestFromNothingWithoutSystemd(t *testing.T) {
	h := newHost(t)
	h.pkgs.missing, h.kernel.low, h.lxd.starting = []string{"lxd"}, true, 2
	h.run.Handle("lxd", func(_ context.Context, c run.Command) (run.Result, error) {
		if c.Detach != h.p.Host("/var/log/lxd/lxd.log") {
			t.Errorf("log in %q", c.Detach)
		}
		h.lxd.listen(debianDir(h.p))
		return run.Result{PID: os.Getpid()}, nil
	})
	if ok, why := h.satisfied(); ok || !strings.HasPrefix(why, "LXD is not there; it is installed and gets storage pool default, bridge lxdbr") || !strings.Contains(why, ", profile hostler of the machines made here (eth0 on lxdbr") {
		t.Errorf("satisfied %v, %s", ok, why)
	}
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	if got := h.programs(); !slices.Equal(got, []string{"lxd --group lxd"}) {
		t.Errorf("ran %q", got)
	}
	if h.pkgs.calls != 1 || h.said[0] != "installing LXD" || h.said[len(h.said)-1] != "raised the kernel's limits for many containers" {
		t.Errorf("%d installations, said %q", h.pkgs.calls, h.said)
	}
	if pool := h.lxd.pools["default"]; pool.Driver != "btrfs" || !strings.HasSuffix(pool.Config["size"], "GiB") {
		t.Errorf("pool %+v", pool)
	}
	bridge := h.lxd.ours.Devices["eth0"]["network"]
	if config := h.lxd.networks[bridge].Config; config["ipv4.nat"] != "true" || !strings.HasSuffix(config["ipv4.address"], ".1/24") {
		t.Errorf("bridge %s %v, devices %v", bridge, config, h.lxd.ours.Devices)
	}
	if len(h.lxd.profile.Devices) > 0 {
		t.Errorf("the default profile got %v", h.lxd.profile.Devices)
	}
	if address, set := h.lxd.config["core.https_address"]; set {
		t.Errorf("LXD listens on %q", address)
	}
	if ok, why := h.satisfied(); !ok {
		t.Errorf("not satisfied: %s", why)
	}
	before := h.lxd.String()
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	if len(h.said) != 0 || h.lxd.String() != before || h.programs() != nil || h.pkgs.calls != 1 {
		t.Errorf("second time: said %q, did %s", h.said, h.lxd)
	}
}

func TestUnderSystemdUnitsAreStarted(t *testing.T) {
	h := newHost(t)
	if err := os.MkdirAll(h.p.SystemdRunning(), 0o755); err != nil {
		t.Fatal(err)
	}
	h.run.Handle("systemctl", func(_ context.Context, c run.Command) (run.Result, error) {
		if slices.Contains(c.Args, "--no-block") {
			h.lxd.listen(debianDir(h.p))
		}
		return run.Result{}, nil
	})
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	if got := h.programs(); !slices.Equal(got, []string{"systemctl start lxd.socket", "systemctl start --no-block lxd.service"}) {
		t.Errorf("ran %q", got)
	}
	h.run.Fail("systemctl", 1, "Job for lxd.socket failed.")
	h = newHost(t)
	if err := os.MkdirAll(h.p.SystemdRunning(), 0o755); err != nil {
		t.Fatal(err)
	}
	h.run.Fail("systemctl", 1, "Job for lxd.socket failed.")
	if err := h.initialise(); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "cannot start LXD: cannot run systemctl: exit status 1: Job for lxd.socket failed.") {
		t.Errorf("got %v", err)
	}
}

// If a daemon ends while its unit is starting, the unit would wait for it for
// ten minutes, so it is restarted. A unit that has failed is reported.
func TestUnitWhoseDaemonEndedWhileStarting(t *testing.T) {
	h := newHost(t)
	h.opts.StartTimeout = time.Second
	if err := os.MkdirAll(h.p.SystemdRunning(), 0o755); err != nil {
		t.Fatal(err)
	}
	unit := "ActiveState=activating\nSubState=start-post\nMainPID=77\n"
	shown := 0
	h.run.Handle("systemctl", func(_ context.Context, c run.Command) (run.Result, error) {
		switch c.Args[0] {
		case "show":
			if shown++; shown == 2 {
				unit = strings.Replace(unit, "77", "0", 1)
			}
			return run.Result{Stdout: []byte(unit)}, nil
		case "restart":
			h.lxd.listen(debianDir(h.p))
		}
		return run.Result{}, nil
	})
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	if got := h.programs(); shown != 2 || !slices.Equal(got[len(got)-1:], []string{"systemctl restart --no-block lxd.service"}) {
		t.Errorf("looked %d times, ran %q", shown, got)
	}
	h = newHost(t)
	h.opts.StartTimeout = time.Second
	if err := os.MkdirAll(h.p.SystemdRunning(), 0o755); err != nil {
		t.Fatal(err)
	}
	h.run.Handle("systemctl", func(context.Context, run.Command) (run.Result, error) {
		return run.Result{Stdout: []byte("ActiveState=failed\nSubState=failed\nMainPID=0\n")}, nil
	})
	if err := h.initialise(); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "lxd.service failed; see `journalctl -u lxd`") {
		t.Errorf("got %v", err)
	}
}

// C23, C21: a running LXD from any kind of installation is used without a call
// to the package manager, and its configuration stays.
func TestForeignLXDIsUsedAsItIs(t *testing.T) {
	h := newHost(t)
	h.pkgs.missing = []string{"lxd", "btrfs-progs"}
	h.lxd.drivers = []string{"dir"}
	h.lxd.listen(h.p.Host("/var/snap/lxd/common/lxd"))
	h.lxd.config["core.https_address"] = ":8443"
	h.lxd.profile.Devices = map[string]map[string]string{"lan": {"type": "nic", "nictype": "macvlan", "parent": "eth0"}}
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	if h.pkgs.calls != 0 || h.programs() != nil {
		t.Errorf("%d installations", h.pkgs.calls)
	}
	if h.lxd.pools["default"].Driver != "dir" || !slices.ContainsFunc(h.said, func(s string) bool { return strings.Contains(s, "no btrfs tools") }) {
		t.Errorf("pools %v, said %q", h.lxd.pools, h.said)
	}
	if len(h.lxd.networks) != 0 || len(h.lxd.profile.Devices) != 1 || len(h.lxd.ours.Devices) != 1 || h.lxd.ours.Devices["root"]["pool"] != "default" {
		t.Errorf("networks %v, devices %v and %v", h.lxd.networks, h.lxd.profile.Devices, h.lxd.ours.Devices)
	}
	if h.lxd.config["core.https_address"] != ":8443" || len(h.lxd.config) != 1 {
		t.Errorf("config %v", h.lxd.config)
	}
}

// A snap that is stopped is started by its own unit and gets no packages.
func TestStoppedSnapIsStarted(t *testing.T) {
	h := newHost(t)
	h.pkgs.missing = []string{"lxd"}
	for name, text := range map[string]string{"/etc/os-release": "ID=ubuntu\nVERSION_ID=24.04\n", paths.SnapLXD: ""} {
		file := h.p.Host(name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(h.p.SystemdRunning(), 0o755); err != nil {
		t.Fatal(err)
	}
	h.run.Handle("systemctl", func(_ context.Context, c run.Command) (run.Result, error) {
		if slices.Contains(c.Args, "start") {
			h.lxd.listen(h.p.Host("/var/snap/lxd/common/lxd"))
		}
		return run.Result{}, nil
	})
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	if got := h.programs(); h.pkgs.calls != 0 || !slices.Equal(got, []string{"systemctl start --no-block snap.lxd.daemon.service"}) {
		t.Errorf("%d installations, ran %q", h.pkgs.calls, got)
	}
}

// Kernel limits that are too low are listed beside the steps in LXD.
func TestAllStepsAreNamed(t *testing.T) {
	h := newHost(t)
	h.lxd.listen(debianDir(h.p))
	h.kernel.low = true
	if ok, why := h.satisfied(); ok || !strings.HasPrefix(why, "LXD gets storage pool default, bridge ") || !strings.HasSuffix(why, "; limits are low") {
		t.Errorf("satisfied %v, %s", ok, why)
	}
}

// hostler's profile gets a lost NIC back; another profile of the same name is
// left alone.
func TestOwnProfile(t *testing.T) {
	h := newHost(t)
	h.lxd.listen(debianDir(h.p))
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	delete(h.lxd.ours.Devices, "eth0")
	if err := h.initialise(); err != nil || h.lxd.ours.Devices["eth0"]["network"] == "" || h.lxd.ours.Devices["root"] == nil {
		t.Errorf("%v, %v", err, h.lxd.ours)
	}
	h.lxd.ours = &api.ProfilePut{}
	if err := h.initialise(); !fault.Is(err, fault.NeedsOperator) || len(h.lxd.ours.Devices) > 0 {
		t.Errorf("%v, %v", err, h.lxd.ours)
	}
	// The machines do not get the other profile, so its devices do not count.
	root := map[string]string{"type": "disk", "path": "/", "pool": "default"}
	lan := map[string]string{"type": "nic", "nictype": "macvlan", "parent": "eth0"}
	h.lxd.ours.Devices = map[string]map[string]string{"root": root, "lan": lan}
	if err := h.initialise(); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("devices of the other profile count: %v", err)
	}
	h.lxd.profile.Devices = map[string]map[string]string{"root": root, "lan": lan}
	h.lxd.ours.Devices = nil
	if err := h.initialise(); err != nil || len(h.lxd.ours.Devices) > 0 {
		t.Errorf("nothing is lacking: %v, %v", err, h.lxd.ours)
	}
}

func TestPoolFallsBackWithTheReason(t *testing.T) {
	h := newHost(t)
	h.lxd.listen(debianDir(h.p))
	h.lxd.refuse["btrfs"] = "no free loop device"
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	if h.lxd.pools["default"].Driver != "dir" || !slices.ContainsFunc(h.said, func(s string) bool { return strings.Contains(s, "no free loop device") }) {
		t.Errorf("pools %v, said %q", h.lxd.pools, h.said)
	}
	h = newHost(t)
	h.lxd.listen(debianDir(h.p))
	h.lxd.refuse["btrfs"], h.lxd.refuse["dir"] = "no space", "no space"
	if err := h.initialise(); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "cannot create storage pool default: no space") {
		t.Errorf("got %v", err)
	}
}

// C3, C4: a failure is reported with its cause, and the next attempt continues.
func TestFailingPackageThenRetry(t *testing.T) {
	h := newHost(t)
	h.pkgs.missing = []string{"lxd"}
	h.pkgs.err = fault.New(fault.Transient, "cannot install lxd: postinst failed")
	if err := h.initialise(); !fault.Is(err, fault.Transient) || err.Error() != "cannot install lxd: postinst failed" {
		t.Errorf("got %v", err)
	}
	h.pkgs.err = nil
	h.pkgs.installed = func() { h.lxd.listen(debianDir(h.p)) }
	if ok, why := h.satisfied(); ok || why != "an installation of packages was interrupted" {
		t.Errorf("satisfied %v, %s", ok, why)
	}
	if err := h.initialise(); err != nil {
		t.Error(err)
	}
	if h.pkgs.calls != 3 { // the second try first finishes the interrupted one
		t.Errorf("%d installations", h.pkgs.calls)
	}
}

// Ubuntu 24.04 has all of Incus's daemon in the package incus. Elsewhere this
// package also installs QEMU, so hostler takes it only if there is no
// incus-base.
func TestIncusBeforeItsPackageWasSplit(t *testing.T) {
	both := []string{"incus-base", "incus"}
	for name, c := range map[string]struct {
		missing, unavailable []string
		want                 string
	}{
		"old repository": {both, both[:1], "incus"},
		"both offered":   {both, nil, "incus-base"},
		"none offered":   {both, both, "incus-base"},
		"old installed":  {append([]string{"nftables"}, both[:1]...), both[:1], "incus"},
	} {
		h := newHost(t)
		h.opts.Dialect = lxd.Incus
		h.pkgs.missing, h.pkgs.unavailable = c.missing, c.unavailable
		h.pkgs.err = errors.New("enough")
		if err := h.initialise(); err == nil || h.pkgs.calls != 1 {
			t.Errorf("%s: %v, %d installations", name, err, h.pkgs.calls)
		}
		if got := among(both, h.pkgs.names); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s: installs %v, want %s", name, h.pkgs.names, c.want)
		}
		_, why := lxd.New(h.opts).Supported(t.Context())
		if refused := strings.Contains(why, "no repository of this host offers incus-base;"); refused != (name == "none offered") {
			t.Errorf("%s: %s", name, why)
		}
	}
}

// On a fresh host without lists of packages, the choice between the two
// packages of Incus waits until the lists are fetched.
func TestIncusPackageIsChosenFromFetchedLists(t *testing.T) {
	h := newHost(t)
	h.opts.Dialect = lxd.Incus
	h.pkgs.missing, h.pkgs.unavailable, h.pkgs.unlisted = []string{"incus-base", "incus"}, []string{"incus-base"}, true
	h.pkgs.err = errors.New("enough")
	if err := h.initialise(); err == nil || !slices.Contains(h.pkgs.names, "incus") {
		t.Errorf("installs %v, %v; want incus", h.pkgs.names, err)
	}
}

// On Debian 12 only the backports have Incus.
func TestIncusWithoutBackports(t *testing.T) {
	h := newHost(t)
	h.pkgs.missing = []string{"incus-base", "incus"}
	h.pkgs.unavailable = []string{"incus-base", "incus"}
	incus := h.opts
	incus.Dialect = lxd.Incus
	if err := os.WriteFile(h.p.OSRelease(), []byte("ID=debian\nVERSION_ID=12\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if ok, why := lxd.New(incus).Supported(t.Context()); ok || !strings.Contains(why, "no repository of this host offers incus-base; add Debian's backports by `echo deb http://deb.debian.org/debian bookworm-backports main >/etc/apt/") {
		t.Errorf("Incus without backports: %v, %q", ok, why)
	}
}

func TestUnknownReleaseNeedsOperator(t *testing.T) {
	h := newHost(t)
	if err := os.WriteFile(h.p.OSRelease(), []byte("ID=plan9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := h.initialise(); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "plan9") {
		t.Errorf("got %v", err)
	}
}

// types.lxd.mtu is applied to an existing bridge that hostler made. Another
// bridge is left alone, and a notice says so.
func TestMTUOfABridgeThatExists(t *testing.T) {
	h := newHost(t)
	h.lxd.listen(debianDir(h.p))
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	notices := map[string]string{}
	h.opts.MTU, h.opts.Notice = 1400, func(key, text string) { notices[key] = text }
	if ok, why := h.satisfied(); ok || !strings.Contains(why, "MTU 1400 of bridge lxdbr0") {
		t.Errorf("satisfied %v, %s", ok, why)
	}
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	bridge := h.lxd.networks["lxdbr0"]
	if ok, why := h.satisfied(); !ok || bridge.Config["bridge.mtu"] != "1400" || bridge.Config["ipv4.nat"] != "true" {
		t.Errorf("satisfied %v, %s: %+v", ok, why, bridge)
	}
	for _, text := range notices {
		if text != "" {
			t.Errorf("notice %q", text)
		}
	}

	bridge.Description = "another's"
	h.lxd.networks["lxdbr0"], h.opts.MTU = bridge, 1300
	ok, why := h.satisfied()
	if text := notices["MTU of LXD's bridge"]; !ok || !strings.Contains(text, "lxc network set lxdbr0 bridge.mtu=1300") {
		t.Errorf("satisfied %v, %s, notice %q", ok, why, text)
	}
	h.opts.MTU = 1500
	if _, _ = h.satisfied(); notices["MTU of LXD's bridge"] != "" {
		t.Errorf("the default is told: %q", notices)
	}
}

// A pool in a plain folder does not limit root disks, and a notice says so.
func TestPoolWithoutLimitsIsReported(t *testing.T) {
	h := newHost(t)
	h.lxd.listen(debianDir(h.p))
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	notices := map[string]string{}
	h.opts.Notice = func(key, text string) { notices[key] = text }
	if ok, why := h.satisfied(); !ok || notices[lxd.LXD.RootDiskNotice()] != "" {
		t.Errorf("satisfied %v, %s, notices %q", ok, why, notices)
	}
	pool := h.lxd.pools["default"]
	pool.Driver = "dir"
	h.lxd.pools["default"] = pool
	if ok, why := h.satisfied(); !ok || !strings.Contains(notices[lxd.LXD.RootDiskNotice()], "does not enforce root-disk") {
		t.Errorf("satisfied %v, %s, notices %q", ok, why, notices)
	}
}

// A release without packages of LXD is unsupported, and the error comes before
// any installation. An existing LXD makes it supported.
func TestReleaseWithoutLXDIsNotSupported(t *testing.T) {
	h := newHost(t)
	for release, want := range map[string]string{
		"ID=ubuntu\nVERSION_ID=\"24.04\"\n": "snap install lxd", "ID=plan9\n": "plan9", "ID=debian\nVERSION_ID=\"12\"\n": "",
	} {
		if err := os.WriteFile(h.p.OSRelease(), []byte(release), 0o644); err != nil {
			t.Fatal(err)
		}
		_, why := lxd.New(h.opts).Supported(t.Context())
		if want == "" && strings.Contains(why, "install") || !strings.Contains(why, want) {
			t.Errorf("%s: %q", release, why)
		}
	}
	h.pkgs.unavailable = []string{"lxd"}
	for release, want := range map[string]string{
		"ID=debian\n":                   "no repository of this host offers lxd; add one, or declare the machines with `type: incus`",
		"ID=ubuntu\nVERSION_ID=26.04\n": "run `snap install lxd`, or declare the machines with `type: incus`",
	} {
		if err := os.WriteFile(h.p.OSRelease(), []byte(release), 0o644); err != nil {
			t.Fatal(err)
		}
		if ok, why := lxd.New(h.opts).Supported(t.Context()); ok || !strings.Contains(why, want) || strings.Contains(why, "is installed") {
			t.Errorf("%q without LXD's packages: %v, %q", release, ok, why)
		}
		h.pkgs.asked = 0
		if ok, why := h.satisfied(); ok || h.pkgs.asked != 0 {
			t.Errorf("%q: satisfied %v, %q, asked apt %d times", release, ok, why, h.pkgs.asked)
		}
	}
	if err := os.WriteFile(h.p.OSRelease(), []byte("ID=plan9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.lxd.listen(debianDir(h.p))
	if ok, why := lxd.New(h.opts).Supported(t.Context()); !ok {
		t.Errorf("with LXD there: %s", why)
	}
}

func TestDaemonThatNeverAnswers(t *testing.T) {
	h := newHost(t)
	h.opts.StartTimeout = 50 * time.Millisecond
	h.run.Handle("lxd", func(context.Context, run.Command) (run.Result, error) { return run.Result{PID: os.Getpid()}, nil })
	if err := h.initialise(); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "cannot start LXD: no answer within 50ms: it has not created its socket") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lxd.New(h.opts).Initialise(ctx, func(string) {}); err == nil {
		t.Error("no error after the end of the context")
	}
}

// The initialiser waits for a daemon that hangs, since a second daemon would
// conflict with it.
func TestHangingDaemonIsNotStartedTwice(t *testing.T) {
	h := newHost(t)
	h.opts.StartTimeout = 50 * time.Millisecond
	if err := os.MkdirAll(debianDir(h.p), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(debianDir(h.p), "unix.socket"))
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
	if err := h.initialise(); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Errorf("got %v", err)
	}
	if got := h.programs(); got != nil {
		t.Errorf("ran %q", got)
	}
}

// A container's limits belong to the surrounding host.
func TestLimitsThatCannotBeSetAreReported(t *testing.T) {
	h := newHost(t)
	h.lxd.listen(debianDir(h.p))
	h.kernel.low, h.kernel.readOnly = true, true
	if err := h.initialise(); err != nil {
		t.Fatal(err)
	}
	if h.kernel.applied != 0 || !slices.Contains(h.said, "cannot raise a kernel limit here: limits are low") {
		t.Errorf("applied %d, said %q", h.kernel.applied, h.said)
	}
}

// Repeated observations leave no goroutines behind.
func TestRepeatedObservationsLeaveNoGoroutines(t *testing.T) {
	h := newHost(t)
	h.lxd.listen(debianDir(h.p))
	h.satisfied()
	before := runtime.NumGoroutine()
	for range 30 {
		h.satisfied()
	}
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before+5 {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines before, %d after", before, runtime.NumGoroutine())
		}
		time.Sleep(10 * time.Millisecond)
	}
}
