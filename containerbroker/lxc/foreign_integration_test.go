//go:build integration

package lxc_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/lxc"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/fault"
)

// makeForeign makes an instance by LXC's own tools.
func (w *world) makeForeign(t *testing.T, name string) (config string) {
	t.Helper()
	given := filepath.Join(t.TempDir(), "config")
	must(t, os.WriteFile(given, []byte("lxc.net.0.type = veth\nlxc.net.0.link = "+w.bridge+"\nlxc.net.0.flags = up\n"), 0o600))
	host(t, "lxc-create", "-P", w.path, "-n", name, "-t", "busybox", "-f", given)
	return filepath.Join(w.path, name, "config")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

// A running instance that an administrator made is adopted, changed, released and
// adopted by another agent. Its process stays, and its config keeps its lines.
func TestAdoptAndRelease(t *testing.T) {
	w := newWorld(t)
	config := w.makeForeign(t, "old")
	before := read(t, config)
	host(t, "lxc-start", "-P", w.path, "-n", "old", "-d")
	seen := find(t, w.d, "old")
	if seen.Stamp != nil || seen.Status != containerbroker.StatusRunning || seen.PID == 0 {
		t.Fatalf("it is listed as %+v", seen)
	}
	m := w.machine(t, "old")
	if err := w.d.Create(t.Context(), m, nil); !fault.Is(err, fault.Conflict) {
		t.Errorf("a creation of its name: %v", err)
	}
	if err := w.d.Delete(t.Context(), "old", m.Stamp); !fault.Is(err, fault.Conflict) {
		t.Errorf("its deletion without a stamp: %v", err)
	}
	must(t, w.d.Stamp(t.Context(), "old", nil, m.Stamp))
	if now := read(t, config); now != before {
		t.Errorf("adopting changed its config to\n%s", now)
	}
	m.ImageID, m.RootDisk, m.Privileged = "", 0, true
	m.CPUs, m.Memory = 1, 128<<20
	w.apply(t, m)
	if left := w.d.Diff(m, find(t, w.d, "old")); len(left) > 0 {
		t.Errorf("it differs by %+v", left)
	}
	changed := read(t, config)
	// Its files would keep the owners of the other kind.
	m.Privileged = false
	owners := w.d.Diff(m, find(t, w.d, "old"))
	if err := w.d.Update(t.Context(), m, owners); len(owners) != 1 || owners[0].Impact != containerbroker.ImpactRecreate || !fault.Is(err, fault.Invalid) {
		t.Errorf("as an unprivileged machine it differs by %+v, %v", owners, err)
	}
	m.Privileged = true
	if now := read(t, config); now != changed {
		t.Errorf("its config is now\n%s", now)
	}
	for line := range strings.Lines(before) {
		if !strings.Contains(changed, line) {
			t.Errorf("its config lost the line %q", line)
		}
	}
	w.says(t, "old", "echo on", "on")

	must(t, w.d.Unstamp(t.Context(), "old", m.Stamp))
	now := find(t, w.d, "old")
	if now.Stamp != nil || now.PID != seen.PID || read(t, config) != changed {
		t.Errorf("released it is %+v", now)
	}
	other := w.broker("other")
	theirs := containerbroker.Stamp{Namespace: "other", UID: "uid-other", Token: "token-other", Record: "{}"}
	must(t, other.Stamp(t.Context(), "old", nil, theirs))
	if err := w.d.Unstamp(t.Context(), "old", m.Stamp); !fault.Is(err, fault.Conflict) {
		t.Errorf("a release of the other agent's: %v", err)
	}
	if err := w.d.Delete(t.Context(), "old", m.Stamp); !fault.Is(err, fault.Conflict) {
		t.Errorf("a deletion of the other agent's: %v", err)
	}
	must(t, other.Unstamp(t.Context(), "old", theirs))
	must(t, w.d.Stamp(t.Context(), "old", nil, m.Stamp))
	if now := find(t, w.d, "old"); now.PID != seen.PID || now.Status != containerbroker.StatusRunning {
		t.Errorf("adopted again it is %+v", now)
	}

	// Its files are in a plain folder, where only their path tells whose a loop
	// device is.
	root := filepath.Join(w.path, "old", "rootfs")
	host(t, "truncate", "-s", "1M", root+"/file")
	inside := host(t, "losetup", "--find", "--show", root+"/file")
	outside := brokertest.Device(t)
	must(t, w.d.SetPower(t.Context(), "old", containerbroker.PowerRestart, 10*time.Second))
	must(t, w.d.Delete(t.Context(), "old", m.Stamp))
	if devices := host(t, "losetup", "--list", "--noheadings", "--output", "NAME") + "\n"; strings.Contains(devices, inside+"\n") || !strings.Contains(devices, outside+"\n") {
		t.Errorf("of %s and %s these are attached: %q", inside, outside, devices)
	}
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Containers of LXD and Incus, which liblxc runs too, are neither listed nor
// changed, even if they have the name of an instance.
func TestBesideLXDAndIncus(t *testing.T) {
	w := newWorld(t)
	servers := []*lxdtest.Server{
		lxdtest.StartWith(t, lxdtest.Options{Daemon: lxdtest.LXD, Driver: "dir"}),
		lxdtest.StartWith(t, lxdtest.Options{Daemon: lxdtest.Incus, Driver: "dir"}),
	}
	type state struct {
		Status string `json:"status"`
		PID    int64  `json:"pid"`
	}
	stateOf := func(s *lxdtest.Server) (now state) {
		t.Helper()
		must(t, s.API("GET", "/1.0/instances/same/state", nil, &now))
		return now
	}
	launch := func(s *lxdtest.Server) {
		t.Helper()
		must(t, s.API("POST", "/1.0/instances", map[string]any{
			"name": "same", "type": "container", "source": map[string]any{"type": "image", "alias": s.TinyAlias},
		}, nil))
		must(t, s.API("PUT", "/1.0/instances/same/state", map[string]any{"action": "start", "timeout": -1}, nil))
	}
	launch(servers[0])
	m := w.machine(t, "same")
	pid := w.start(t, m)
	launch(servers[1])
	var before []state
	for _, s := range servers {
		before = append(before, stateOf(s))
	}
	all, err := w.d.List(t.Context(), true)
	must(t, err)
	if len(all) != 1 || all[0].PID != pid || all[0].Stamp == nil {
		t.Errorf("listed: %+v", all)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, err := w.d.Events(ctx)
	must(t, err)
	for _, action := range []string{"freeze", "unfreeze", "restart"} {
		must(t, servers[1].API("PUT", "/1.0/instances/same/state", map[string]any{"action": action, "force": true, "timeout": -1}, nil))
	}
	before[1] = stateOf(servers[1])
	if now := find(t, w.d, "same"); now.PID != pid || now.Status != containerbroker.StatusRunning {
		t.Errorf("after Incus's restart: %+v", now)
	}
	cancel()
	for e := range events {
		if e.Action != "started" { // it runs already
			t.Errorf("an event: %+v", e)
		}
	}
	must(t, w.d.SetPower(t.Context(), "same", containerbroker.PowerRestart, 0))
	_, _, err = w.d.MoveLeftovers(t.Context())
	must(t, err)
	must(t, w.d.Delete(t.Context(), "same", m.Stamp))
	for n, s := range servers {
		if now := stateOf(s); now != before[n] || now.Status != "Running" {
			t.Errorf("%s's was %+v and is %+v", s.Daemon.Name, before[n], now)
		}
	}
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// X7: the logs of removed instances are kept for a time, and no other file of them: by
// the deletion of another instance or by the event stream alone they go. Beyond a
// number, the oldest go sooner.
func TestKeptLogs(t *testing.T) {
	w := newWorld(t)
	keeping := func(keep time.Duration) *lxc.Driver {
		return lxc.New(lxc.Options{Path: w.path, Namespace: "hostler", IDs: w.ids, Bridge: w.bridge, Images: w.cache, KeepRemoved: keep})
	}
	remove := func(name string) {
		t.Helper()
		m := w.machine(t, name)
		m.Stamp.Token = "x-" + name + "-7"
		w.start(t, m)
		must(t, w.d.Delete(t.Context(), name, m.Stamp))
	}
	kept := func() string {
		t.Helper()
		paths, err := filepath.Glob(w.path + "/.hostler/removed/*/*")
		must(t, err)
		var files []string
		for _, file := range paths {
			folder := filepath.Base(filepath.Dir(file))
			files = append(files, folder[:1]+"/"+filepath.Base(file))
		}
		return strings.Join(files, " ")
	}
	w.d = keeping(time.Hour)
	remove("b")
	remove("a")
	if got := kept(); got != "a/console.log a/start.log b/console.log b/start.log" {
		t.Errorf("kept: %s", got)
	}
	folders, err := filepath.Glob(w.path + "/.hostler/removed/b-*")
	must(t, err)
	must(t, os.Chtimes(folders[0], time.Time{}, time.Now().Add(-2*time.Hour)))
	remove("c")
	if got := kept(); got != "a/console.log a/start.log c/console.log c/start.log" {
		t.Errorf("after b's time: %s", got)
	}
	for n := range 30 {
		dir := filepath.Join(w.path, ".hostler/removed", fmt.Sprintf("z-%d", n))
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.Chtimes(dir, time.Time{}, time.Now().Add(-time.Duration(n+1)*time.Minute)))
	}
	_, _, err = w.d.MoveLeftovers(t.Context())
	must(t, err)
	many, err := filepath.Glob(w.path + "/.hostler/removed/*")
	must(t, err)
	if last := filepath.Base(many[len(many)-1]); len(many) != 20 || !strings.HasPrefix(kept(), "a/") || last != "z-9" {
		t.Errorf("kept: %q", many)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, err := keeping(time.Second).Events(ctx)
	must(t, err)
	within(t, "the logs stay after their time", func() bool { return kept() == "" })
	cancel()
	for range events {
	}
	w.d = keeping(0)
	remove("d")
	if got := kept(); got != "" {
		t.Errorf("kept in spite of 0: %s", got)
	}
}

// A filesystem that an administrator mounted in a root filesystem keeps the owners of
// its files when the machine becomes privileged.
func TestOwnersOfMountedFiles(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "mounted")
	must(t, w.d.Create(t.Context(), m, nil))
	data := t.TempDir()
	owner := int(w.ids.FirstUser) + 33
	must(t, os.Chown(data, owner, owner))
	point := filepath.Join(w.path, ".hostler/pool/guests", m.Stamp.Token, "data")
	must(t, os.Mkdir(point, 0o755))
	host(t, "mount", "--bind", data, point)
	mounted := true
	t.Cleanup(func() {
		if mounted {
			host(t, "umount", point)
		}
	})
	m.Privileged = true
	w.apply(t, m)
	if err := w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "umount "+point) {
		t.Errorf("its start: %v", err)
	}
	if got, want := host(t, "stat", "-c", "%u", data), fmt.Sprint(owner); got != want {
		t.Errorf("the owner was %s and is %s", want, got)
	}
	host(t, "umount", point)
	mounted = false
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
}
