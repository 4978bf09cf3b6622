//go:build integration

package lxd_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/initialisers/lxd"
	"hostler/internal/hosttest"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/packaging"
	"hostler/sysctl"
)

// private is an LXD or Incus with a folder of its own, started by the
// initialiser.
type private struct {
	t       *testing.T
	dialect lxd.Dialect
	dir     string
	root    string
	opts    lxd.Options
	said    []string
}

// newPrivate uses LXD, or the daemon that HOSTLER_TEST_DAEMON names.
func newPrivate(t *testing.T) *private {
	t.Helper()
	if lxdtest.Chosen() == lxdtest.Incus {
		return newPrivateOf(t, lxd.Incus)
	}
	return newPrivateOf(t, lxd.LXD)
}

func newPrivateOf(t *testing.T, dialect lxd.Dialect) *private {
	t.Helper()
	hosttest.KeepForwarding(t)
	dir, err := os.MkdirTemp("/var/lib", "hl") //nolint:usetesting // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	// The kernel's limits are global to the machine, so copies in a folder
	// replace them.
	h := &private{t: t, dialect: dialect, dir: dir, root: t.TempDir()}
	for name, value := range map[string]string{
		"fs/inotify/max_user_instances": "128", "fs/inotify/max_user_watches": "8192",
		"kernel/keys/maxkeys": "200", "kernel/keys/maxbytes": "20000",
	} {
		writeFile(t, filepath.Join(h.root, "proc/sys", name), value)
	}
	if err := os.Mkdir(filepath.Join(h.root, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.build(h.root)
	t.Cleanup(h.cleanUp)
	return h
}

// build sets the options: the host is the real host, except for the agent's own
// folder and the kernel's limits, which are below root.
func (h *private) build(root string) {
	log := slog.New(slog.DiscardHandler)
	state := filepath.Join(root, "state")
	p := paths.New("", "", state, state)
	h.opts = lxd.Options{
		Dialect: h.dialect,
		Runner:  run.Host{}, Packages: packaging.NewApt(p, run.Host{}, run.Host{}, "", nil, log),
		Sysctl: sysctl.New(paths.New(root, "", state, state), log),
		Paths:  p, Dir: h.dir, Group: "root", Logger: log,
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (h *private) lxc(args ...string) string {
	h.t.Helper()
	result, err := run.Host{}.Run(context.WithoutCancel(h.t.Context()), run.Command{Path: "/usr/bin/" + h.dialect.Command, Args: args, Env: []string{h.dialect.Variable + "=" + h.dir}, Timeout: time.Minute})
	if err != nil {
		h.t.Errorf("%s %v: %v", h.dialect.Command, args, err)
	}
	return strings.TrimSpace(string(result.Stdout))
}

func (h *private) daemon() int {
	h.t.Helper()
	_, after, _ := strings.Cut(h.lxc("info"), "server_pid: ")
	var pid int
	if _, err := fmt.Sscan(after, &pid); err != nil || pid < 2 {
		h.t.Fatalf("no process of the daemon: %d, %v", pid, err)
	}
	return pid
}

// kill ends a process and waits until it is gone.
func (h *private) kill(pid int) {
	h.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		h.t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); syscall.Kill(pid, 0) == nil && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
}

func (h *private) cleanUp() {
	for line := range strings.Lines(h.lxc("profile", "list", "-f", "csv")) {
		if name, _, _ := strings.Cut(line, ","); name != "default" {
			h.lxc("profile", "delete", name)
		}
	}
	for device := range strings.FieldsSeq(h.lxc("profile", "device", "list", "default")) {
		h.lxc("profile", "device", "remove", "default", device)
	}
	for line := range strings.Lines(h.lxc("network", "list", "-f", "csv")) {
		if f := strings.Split(line, ","); f[2] == "YES" {
			h.lxc("network", "delete", f[0])
		}
	}
	for line := range strings.Lines(h.lxc("storage", "list", "-f", "csv")) {
		h.lxc("storage", "delete", strings.Split(line, ",")[0])
	}
	shutDown := run.Command{Path: h.dialect.Program, Args: []string{"shutdown", "--timeout", "30"}, Env: []string{h.dialect.Variable + "=" + h.dir}, Timeout: time.Minute}
	if h.dialect.Name == lxd.Incus.Name {
		shutDown.Path, shutDown.Args = "/usr/bin/incus", append([]string{"admin"}, shutDown.Args...)
	}
	if _, err := (run.Host{}).Run(context.Background(), shutDown); err != nil {
		h.t.Error(err)
	}
	for _, mount := range []string{"shmounts", "devlxd", "guestapi"} {
		_ = syscall.Unmount(filepath.Join(h.dir, mount), syscall.MNT_DETACH)
	}
	if err := os.RemoveAll(h.dir); err != nil {
		h.t.Error(err)
	}
}

func (h *private) initialise() {
	h.t.Helper()
	h.said = nil
	if err := lxd.New(h.opts).Initialise(h.t.Context(), func(s string) { h.said = append(h.said, s) }); err != nil {
		h.t.Fatalf("%v after %q", err, h.said)
	}
}

func (h *private) wantSatisfied(want bool) {
	h.t.Helper()
	if ok, why := lxd.New(h.opts).Satisfied(h.t.Context()); ok != want {
		h.t.Errorf("satisfied: %v, %s", ok, why)
	}
}

// C6, C21, C23, L12: from nothing to a configured daemon that outlives its
// starter; afterwards nothing is left to do.
func TestInitialiseFromNothing(t *testing.T) {
	for _, dialect := range []lxd.Dialect{lxd.LXD, lxd.Incus} {
		t.Run(dialect.Name, func(t *testing.T) { initialiseFromNothing(t, dialect) })
	}
}

func initialiseFromNothing(t *testing.T, dialect lxd.Dialect) {
	h := newPrivateOf(t, dialect)
	if ok, why := lxd.New(h.opts).Supported(t.Context()); !ok {
		t.Fatalf("not supported: %s", why)
	}
	h.wantSatisfied(false)
	h.initialise()
	t.Logf("said %q", h.said)
	h.wantSatisfied(true)
	if got := h.lxc("storage", "show", "default"); !strings.Contains(got, "driver: btrfs") || !strings.Contains(got, "size:") {
		t.Errorf("pool: %s", got)
	}
	profile := h.lxc("profile", "show", "hostler")
	for _, want := range []string{"pool: default", "path: /", "name: eth0", "network: " + dialect.Type + "br", "type: nic"} {
		if !strings.Contains(profile, want) {
			t.Errorf("profile lacks %q: %s", want, profile)
		}
	}
	// The second run changes nothing and so reports nothing.
	pid := h.daemon()
	h.initialise()
	if len(h.said) != 0 || h.daemon() != pid {
		t.Errorf("second time: %q, process %d after %d", h.said, h.daemon(), pid)
	}
	// Another MTU is applied to the existing bridge.
	_, bridge, _ := strings.Cut(profile, "network: ")
	bridge, _, _ = strings.Cut(bridge, "\n")
	h.opts.MTU = 1400
	h.wantSatisfied(false)
	h.initialise()
	h.wantSatisfied(true)
	if mtu, err := os.ReadFile("/sys/class/net/" + bridge + "/mtu"); strings.TrimSpace(string(mtu)) != "1400" {
		t.Errorf("the MTU of %s is %q, %v", bridge, mtu, err)
	}
	// A killed daemon is started again and keeps its configuration.
	h.kill(pid)
	h.wantSatisfied(false)
	h.initialise()
	if !slices.Equal(h.said, []string{"starting " + dialect.Name}) {
		t.Errorf("after a kill: %q", h.said)
	}
	h.wantSatisfied(true)
}

// When LXD starts, it kills the process whose pid it once recorded for a
// network's dnsmasq. After a power cut that is any other process, or LXD
// itself.
func TestStalePIDsEndNoProcess(t *testing.T) {
	h := newPrivate(t)
	h.initialise()
	files, err := filepath.Glob(filepath.Join(h.dir, "networks", "*", "dnsmasq.pid"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	before, after, _ := strings.Cut(string(text), "\npid: ")
	number, after, _ := strings.Cut(after, "\n")
	dnsmasq, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	h.kill(h.daemon())
	h.kill(dnsmasq)
	bystander := exec.Command("sleep", "600")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = bystander.Wait(); close(ended) }()
	defer func() { _ = bystander.Process.Kill(); <-ended }()
	writeFile(t, files[0], fmt.Sprintf("%s\npid: %d\n%s", before, bystander.Process.Pid, after))
	h.initialise()
	select {
	case <-ended:
		t.Error("a process that has nothing to do with LXD was killed")
	default:
	}
	// dnsmasq runs again, and a living dnsmasq is left alone.
	running, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	h.kill(h.daemon())
	h.initialise()
	if now, err := os.ReadFile(files[0]); err != nil || string(now) == string(running) {
		t.Errorf("LXD has not replaced the dnsmasq that it knew: %s, %v", now, err)
	}
}

// I7: a daemon may have no socket yet because its starter was killed. The
// initialiser waits for it: a second daemon in its folder would ruin its
// database.
func TestAStartingDaemonIsWaitedFor(t *testing.T) {
	h := newPrivate(t)
	started, err := run.Host{}.Run(t.Context(), run.Command{
		Path: h.dialect.Program, Args: []string{"--group", "root"}, Env: []string{h.dialect.Variable + "=" + h.dir}, Detach: filepath.Join(h.root, "lxd.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(started.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(h.dir, "unix.socket")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the daemon was not stopped in time: %v", err)
	}
	waits := func(s string) {
		if strings.HasPrefix(s, "waiting for "+h.dialect.Name) {
			_ = syscall.Kill(started.PID, syscall.SIGCONT)
		}
	}
	if err := lxd.New(h.opts).Initialise(t.Context(), waits); err != nil {
		t.Error(err)
	}
	if pid := h.daemon(); pid != started.PID {
		t.Errorf("the daemon is process %d after %d", pid, started.PID)
	}
}

// Purging the package removes profile, bridge and pool, but leaves all of them
// if an instance uses the profile.
func TestPurgeRemovesUnusedParts(t *testing.T) {
	h := newPrivate(t)
	h.initialise()
	h.lxc("network", "create", "theirs0", "ipv4.address=none", "ipv6.address=none")
	image := filepath.Join(t.TempDir(), "tiny.tar")
	if err := lxdtest.BuildTiny(image, ""); err != nil {
		t.Fatal(err)
	}
	h.lxc("image", "import", image, "--alias", "tiny") // the pool keeps a copy of it
	h.lxc("init", "tiny", "web", "--profile", "default", "--profile", "hostler")
	objects := func() string {
		return h.lxc("profile", "list", "-f", "csv") + "\n" + h.lxc("network", "list", "-f", "csv") + "\n" + h.lxc("storage", "list", "-f", "csv")
	}
	purged := func() string {
		t.Helper()
		// The host's own daemons are not touched.
		nothing := t.TempDir()
		purge(t, "LXD_DIR="+nothing, "INCUS_DIR="+nothing, h.dialect.Variable+"="+h.dir)
		return objects()
	}
	before := objects()
	if after := purged(); after != before {
		t.Errorf("with an instance it leaves %s\nof %s", after, before)
	}
	h.lxc("delete", "web")
	if after := purged(); strings.Contains(after, "hostler") || !strings.Contains(after, "theirs0") {
		t.Errorf("without instances it leaves %s", after)
	}
}

// C10, C21, L12: the administrator's setup stays; only missing parts are added.
func TestInitialiseKeepsTheAdministratorsSetup(t *testing.T) {
	h := newPrivate(t)
	h.opts.NetworkMethod = lxd.NetworkProvider
	h.initialise()
	if got := h.lxc("network", "list", "-f", "csv"); strings.Contains(got, "YES") {
		t.Errorf("a bridge was made: %s", got)
	}
	h.lxc("profile", "delete", "hostler")
	h.lxc("storage", "delete", "default")
	h.lxc("storage", "create", "mine", "dir")
	h.lxc("profile", "device", "add", "default", "eth0", "none")
	h.opts.NetworkMethod = lxd.NetworkLocal
	h.opts.MTU = 1400
	h.wantSatisfied(false)
	h.initialise()
	h.wantSatisfied(true)
	if got := h.lxc("storage", "list", "-f", "csv"); !strings.HasPrefix(got, "mine,") || strings.Contains(got, "\n") {
		t.Errorf("pools: %s", got)
	}
	if profile := h.lxc("profile", "show", "default"); strings.Contains(profile, "pool: mine") || !strings.Contains(profile, "type: none") {
		t.Errorf("the default profile: %s", profile)
	}
	profile := h.lxc("profile", "show", "hostler")
	for _, want := range []string{"pool: mine", "name: eth0"} {
		if !strings.Contains(profile, want) {
			t.Errorf("profile lacks %q: %s", want, profile)
		}
	}
	bridge := h.lxc("profile", "device", "get", "hostler", "eth0", "network")
	if got := h.lxc("network", "get", bridge, "bridge.mtu"); got != "1400" {
		t.Errorf("mtu %q", got)
	}
}
