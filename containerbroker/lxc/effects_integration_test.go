//go:build integration

package lxc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/lxc"
	"hostler/internal/fault"
)

// world is a rig with one broker and its image.
type world struct {
	*rig
	d    *lxc.Driver
	id   string
	next int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{rig: newRig(t, true)}
	w.d = w.broker("hostler")
	var err error
	w.id, err = w.d.EnsureImage(t.Context(), image, nil)
	must(t, err)
	return w
}

// machine returns a machine whose instance is deleted when the test ends.
func (w *world) machine(t *testing.T, name string) containerbroker.Machine {
	t.Helper()
	w.next++
	m := containerbroker.Machine{
		Name: name, ImageID: w.id, Properties: containerbroker.Properties{CPUs: 1, Memory: 64 << 20, RootDisk: 64 << 20},
		Stamp: containerbroker.Stamp{Namespace: "hostler", UID: "uid-" + name, Token: "token-" + name + strconv.Itoa(w.next), Record: "{}"},
	}
	t.Cleanup(func() { must(t, w.d.Delete(context.WithoutCancel(t.Context()), name, m.Stamp)) })
	return m
}

func (w *world) start(t *testing.T, m containerbroker.Machine) int64 {
	t.Helper()
	must(t, w.d.Create(t.Context(), m, nil))
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	return find(t, w.d, m.Name).PID
}

// apply makes all changes of a machine.
func (w *world) apply(t *testing.T, m containerbroker.Machine) {
	t.Helper()
	must(t, w.d.Update(t.Context(), m, w.d.Diff(m, find(t, w.d, m.Name))))
}

// inside runs a shell command in a guest and returns its output and exit code.
func (w *world) inside(t *testing.T, name, script string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	code, err := w.d.Exec(t.Context(), name, containerbroker.ExecRequest{Command: []string{"/bin/sh", "-c", "exec 2>&1; " + script}, Stdout: &out})
	must(t, err)
	return strings.TrimSpace(out.String()), code
}

func (w *world) says(t *testing.T, name, script, want string) {
	t.Helper()
	if got, _ := w.inside(t, name, script); got != want {
		t.Errorf("%s: %q, want %q", script, got, want)
	}
}

// patience bounds every wait for a condition. A busy machine may take long.
const patience = 2 * time.Minute

// within tries a check until it holds.
func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// What an update changes is seen by the running guest at once.
func TestLiveChanges(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "live")
	pid := w.start(t, m)
	if _, code := w.inside(t, m.Name, "dd if=/dev/zero of=/root/big bs=1M count=80"); code == 0 {
		t.Error("the root disk has no limit")
	}
	w.inside(t, m.Name, "rm /root/big")
	m.CPUs, m.Memory, m.RootDisk = 2, 96<<20, 0
	w.apply(t, m)
	limits := map[string]string{"memory/CGROUP/memory.limit_in_bytes": "100663296", "cpu/CGROUP/cpu.cfs_quota_us": "200000"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // cgroup v2
		limits = map[string]string{"CGROUP/memory.max": "100663296", "CGROUP/cpu.max": "200000 100000"}
	}
	for file, want := range limits {
		file = "/sys/fs/cgroup/" + strings.Replace(file, "CGROUP", "lxc.payload.hostler.live", 1)
		if text, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(text)) != want {
			t.Errorf("%s is %q, want %s, %v", file, text, want, err)
		}
	}
	if _, code := w.inside(t, m.Name, "dd if=/dev/zero of=/root/big bs=1M count=80 && rm /root/big"); code != 0 {
		t.Error("the limit of the root disk stayed")
	}

	share, volume := folder(t), brokertest.Device(t)
	must(t, os.WriteFile(filepath.Join(share, "file"), []byte("from the host"), 0o644))
	must(t, os.Chmod(share, 0o777))
	m.Disks = []containerbroker.Disk{
		{Name: "fs-www", Source: share, Path: "/srv/www/deep"}, {Name: "vol-data", Source: volume, Device: "/dev/hostler-data"},
	}
	w.apply(t, m)
	w.says(t, m.Name, "cat /srv/www/deep/file; touch /srv/www/deep/new && echo done", "from the hostdone")
	w.says(t, m.Name, "echo abc | dd of=/dev/hostler-data 2>/dev/null && head -c 3 /dev/hostler-data", "abc")
	w.says(t, m.Name, "ls -ln /dev/hostler-data | { read a b c d e; echo $a $c $d; }", "brw-rw---- 0 0")
	m.Disks[0].ReadOnly, m.Disks[1].ReadOnly = true, true
	w.apply(t, m)
	if out, code := w.inside(t, m.Name, "touch /srv/www/deep/more"); code == 0 || !strings.Contains(out, "Read-only") {
		t.Errorf("a read-only folder: %s", out)
	}
	if out, code := w.inside(t, m.Name, "echo abc >/dev/hostler-data"); code == 0 {
		t.Errorf("a read-only volume: %s", out)
	}
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerRestart, 10*time.Second))
	w.says(t, m.Name, "cat /srv/www/deep/file; head -c 3 /dev/hostler-data", "from the hostabc")
	m.Disks = nil
	w.apply(t, m)
	w.says(t, m.Name, "ls /srv/www/deep; ls /dev/hostler-data 2>/dev/null", "")
	if now := find(t, w.d, m.Name).PID; now == pid {
		t.Error("the restart kept the process")
	}
}

// A guest that becomes privileged, and unprivileged again, keeps its files,
// their owners, rights and capabilities.
func TestPrivilegedAndBack(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "priv")
	w.start(t, m)
	w.inside(t, m.Name, "echo x >/root/mine; chown 33:34 /root/mine; chmod 4711 /root/mine; ln -s /nowhere /root/link")
	path := filepath.Join(w.path, ".hostler/pool/guests", m.Stamp.Token)
	host(t, "setfattr", "-n", "security.capability", "-v", "0x0100000200200000000000000000000000000000", path+"/sbin/init")
	owner := func(want string) {
		t.Helper()
		if got := host(t, "stat", "-c", "%u %g %a", path+"/root/mine"); got != want {
			t.Errorf("its file has %s, want %s", got, want)
		}
	}
	for _, privileged := range []bool{true, false} {
		m.Privileged = privileged
		w.apply(t, m)
		must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerRestart, 10*time.Second))
		w.says(t, m.Name, "stat -c '%u %g %a' /root/mine", "33 34 4711")
		if privileged {
			owner("33 34 4711")
		}
	}
	owner(strconv.Itoa(int(w.ids.FirstUser)+33) + " " + strconv.Itoa(int(w.ids.FirstGroup)+34) + " 4711")
	if caps := host(t, "getfattr", "-e", "hex", "-n", "security.capability", path+"/sbin/init"); !strings.Contains(caps, "=0x01000003002") {
		t.Errorf("its capabilities are %s", caps)
	}
}

// Exit codes come through. A command that cannot run says why. The end of the
// context ends the command in the guest, and frozen guests are not entered.
func TestExecInGuests(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "exec")
	w.start(t, m)
	for script, want := range map[string]int{"exit 7": 7, "kill -9 $$": 137, "exit 126": 126} {
		if _, code := w.inside(t, m.Name, script); code != want {
			t.Errorf("%s: %d", script, code)
		}
	}
	for command, want := range map[string]int{"/no/such": 127, "/etc/passwd": 126} {
		var stderr bytes.Buffer
		code, err := w.d.Exec(t.Context(), m.Name, containerbroker.ExecRequest{Command: []string{command}, Stderr: &stderr})
		if err != nil || code != want || !strings.Contains(stderr.String(), command) {
			t.Errorf("%s: %d, %v, %q", command, code, err, &stderr)
		}
	}
	w.says(t, m.Name, "echo $HOME $USER $PWD", "/root root /")
	ctx, cancel := context.WithCancel(t.Context())
	r, out := io.Pipe()
	go func() {
		_, _ = r.Read(make([]byte, 1))
		cancel()
		_, _ = io.Copy(io.Discard, r)
	}()
	if _, err := w.d.Exec(ctx, m.Name, containerbroker.ExecRequest{Command: []string{"sh", "-c", "echo up; sleep 4711"}, Stdout: out}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	within(t, "a cancelled command still runs", func() bool { out, _ := w.inside(t, m.Name, "ps | grep '[s]leep 4711'"); return out == "" })
	w.freeze(t, m.Name)
	if i := find(t, w.d, m.Name); i.Status != containerbroker.StatusFrozen || i.Standstill == "" {
		t.Errorf("frozen it is %s, %q", i.Status, i.Standstill)
	}
	if _, err := w.d.Exec(t.Context(), m.Name, containerbroker.ExecRequest{Command: []string{"true"}}); !fault.Is(err, fault.NotReady) {
		t.Errorf("in a frozen guest: %v", err)
	}
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	w.says(t, m.Name, "echo on", "on")
}

// A console belongs to one reader at a time, and shows what the guest writes.
func TestConsoleOfGuest(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "console")
	w.start(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	in, _ := io.Pipe() // nobody types
	shown, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- w.d.Console(ctx, m.Name, struct {
			io.Reader
			io.Writer
		}{in, out})
	}()
	text := make(chan string, 1)
	go func() {
		b := make([]byte, 100)
		n, _ := shown.Read(b)
		text <- string(b[:n])
		_, _ = io.Copy(io.Discard, shown)
	}()
	// Only its own output proves that the first reader has the console: a second
	// reader that opens it earlier would get it.
	var got string
	within(t, "the console shows nothing", func() bool {
		w.inside(t, m.Name, "echo hello >/dev/console")
		select {
		case got = <-text:
			return true
		case err := <-ended:
			t.Fatalf("the console ended: %v", err)
		default:
		}
		return false
	})
	if !strings.Contains(got, "hello") {
		t.Errorf("it shows %q", got)
	}
	err := w.d.Console(t.Context(), m.Name, struct {
		io.Reader
		io.Writer
	}{strings.NewReader(""), io.Discard})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("for a second reader: %v", err)
	}
	cancel()
	must(t, <-ended)
	log, err := w.d.Log(t.Context(), m.Name)
	must(t, err)
	if all, err := io.ReadAll(log); err != nil || !strings.Contains(string(all), "hello") {
		t.Errorf("the log: %q, %v", all, err)
	}
}

// A failed start says why. A killed monitor leaves cgroups, over which the next
// start works.
func TestStartsThatFail(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "fails")
	m.NICs = []containerbroker.NIC{{Name: "eth0", Bridge: "nosuchbridge0", MAC: "00:16:3e:00:77:09"}}
	must(t, w.d.Create(t.Context(), m, nil))
	err := w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0)
	if err == nil || !strings.Contains(err.Error(), "LXC says") || fault.KindOf(err) != fault.Transient {
		t.Errorf("without its bridge: %v", err)
	}
	t.Log(err)
	m.NICs[0].Bridge = w.bridge
	w.apply(t, m)
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	for range 5 {
		must(t, syscall.Kill(monitorOf(t, find(t, w.d, m.Name).PID), syscall.SIGKILL))
		within(t, "it still runs", func() bool { return find(t, w.d, m.Name).Status == containerbroker.StatusStopped })
		must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	}
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStop, 0))
	must(t, w.d.Delete(t.Context(), m.Name, m.Stamp))
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A guest that made subvolumes, and whose files are behind loop devices, is
// deleted completely. Its console's log is kept.
func TestDeleteOfBusyFiles(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "busy")
	w.start(t, m)
	root := filepath.Join(w.path, ".hostler/pool/guests", m.Stamp.Token)
	host(t, "btrfs", "-q", "subvolume", "create", root+"/srv-inner")
	host(t, "btrfs", "-q", "subvolume", "create", root+"/srv-inner/deeper")
	host(t, "truncate", "-s", "1M", root+"/file")
	loop := host(t, "losetup", "--find", "--show", root+"/file")
	must(t, w.d.Delete(t.Context(), m.Name, m.Stamp))
	if out := host(t, "losetup", "-l", "-n", "-O", "BACK-FILE", "--list"); strings.Contains(out, w.path+"/.hostler/pool/guests") {
		t.Errorf("%s is still attached", loop)
	}
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if kept, _ := filepath.Glob(w.path + "/.hostler/removed/busy-*/console.log"); len(kept) != 1 {
		t.Errorf("kept logs: %q", kept)
	}
}

// What an administrator does with LXC's own tools is noticed.
func TestEventsOfOthers(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "hand")
	must(t, w.d.Create(t.Context(), m, nil))
	await := awaiting(t, w.d, m.Name)
	host(t, "lxc-start", "-P", w.path, "-n", m.Name, "-d")
	await("started")
	host(t, "lxc-attach", "-P", w.path, "-n", m.Name, "--", "true")
	must(t, syscall.Kill(int(find(t, w.d, m.Name).PID), syscall.SIGKILL))
	await("init-ended")
	await("ended")
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	await("started")
	host(t, "lxc-stop", "-P", w.path, "-n", m.Name, "-k")
	await("ended")
	host(t, "sh", "-c", "echo '# a line' >>"+w.path+"/hand/config")
	await("changed")
	text, err := os.ReadFile(w.path + "/hand/config")
	must(t, err)
	must(t, os.WriteFile(w.path+"/hand/config", append(text, "lxc.bad = 1\n"...), 0o600))
	if i := find(t, w.d, m.Name); i.Status != containerbroker.StatusError || !strings.Contains(i.Odd, "lxc.bad = 1") {
		t.Errorf("with a line that liblxc refuses: %s, %q", i.Status, i.Odd)
	}
}

// A hostile root filesystem leads no write out of it.
// Attack: guests
func TestHostileRoot(t *testing.T) {
	w := newWorld(t)
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("safe"), 0o644))
	img := filepath.Join(w.path, ".hostler/pool/images", w.id)
	for _, args := range [][]string{{"rm", "-f", img + "/etc/hostname"}, {"ln", "-s", victim, img + "/etc/hostname"}, {"mkdir", "-p", img + "/etc/cloud"}, {"ln", "-s", filepath.Dir(victim), img + "/var/lib/cloud"}} {
		host(t, args...)
	}
	m := w.machine(t, "hostile")
	err := w.d.Create(t.Context(), m, nil)
	if found, _ := os.ReadDir(filepath.Dir(victim)); err == nil || len(found) != 1 {
		t.Errorf("a seed behind a link: %v, %v", err, found)
	}
	host(t, "rm", img+"/var/lib/cloud")
	must(t, w.d.Create(t.Context(), m, nil))
	if text, err := os.ReadFile(victim); err != nil || string(text) != "safe" {
		t.Errorf("the host's file holds %q, %v", text, err)
	}
	seed := filepath.Join(w.path, ".hostler/pool/guests", m.Stamp.Token, "var/lib/cloud/seed/nocloud/user-data")
	if got := host(t, "stat", "-c", "%u %a", seed); got != strconv.Itoa(int(w.ids.FirstUser))+" 600" {
		t.Errorf("user-data has %s", got)
	}
}
