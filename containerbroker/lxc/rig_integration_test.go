//go:build integration

package lxc_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/images"
	"hostler/containerbroker/lxc"
	"hostler/containerbroker/lxc/lxctest"
	"hostler/internal/hosttest"
	"hostler/internal/run"
	"hostler/storage/idmap"
)

// rig is a private folder of instances with a pool, and a bridge with a DHCP
// server.
type rig struct {
	t            *testing.T
	folder       *lxctest.Folder
	path, bridge string // path is the folder's
	ids          lxc.IDs
	cache        *images.Cache
}

// image is a small image whose init keeps running.
const image = "busybox/1"

func newRig(t *testing.T, btrfs bool) *rig {
	t.Helper()
	size := ""
	if btrfs {
		size = "2G"
	}
	r := &rig{t: t, folder: lxctest.NewFolder(t, "hostler", size)}
	r.path = r.folder.Path
	ids, err := idmap.Of("/etc/subuid", "/etc/subgid", "root", idmap.Map{})
	must(t, err)
	r.ids = lxc.IDs{FirstUser: ids.Users.First, FirstGroup: ids.Groups.First, Count: min(ids.Users.Count, ids.Groups.Count)}
	r.serve()
	r.cache, err = images.Open(images.Options{Dir: filepath.Join(r.folder.Dir, "images"), Runner: run.Host{}})
	must(t, err)
	return r
}

// serve makes a bridge with a DHCP server.
func (r *rig) serve() {
	r.bridge = brokertest.Bridge(r.t)
	first := hosttest.FreeSubnet(r.t)
	host(r.t, "ip", "address", "add", first+".1/24", "dev", r.bridge)
	server := exec.Command("/usr/sbin/dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--bind-interfaces",
		"--except-interface=lo", "--interface="+r.bridge, "--dhcp-authoritative", "--dhcp-no-override", "--no-ping",
		"--dhcp-leasefile="+filepath.Join(r.folder.Dir, "leases"), "--pid-file=", "--user=root",
		"--dhcp-range="+first+".2,"+first+".254,infinite")
	must(r.t, server.Start())
	r.t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
}

func (r *rig) broker(namespace string) *lxc.Driver {
	return lxc.New(lxc.Options{Path: r.path, Namespace: namespace, IDs: r.ids, Bridge: r.bridge, Images: r.cache, KeepRemoved: time.Hour})
}

// left describes what remains of the instances.
func (r *rig) left() (all []string) {
	for _, pattern := range []string{
		r.path + "/*", r.path + "/.hostler/making/*", r.path + "/.hostler/pool/guests/*", r.path + "/.hostler/pool/privileged/*",
		"/sys/fs/cgroup/*/lxc.[mp]*.hostler.*", "/sys/fs/cgroup/lxc.[mp]*.hostler.*", "/sys/class/net/" + r.bridge + "/brif/*",
		"/run/lxc/lock" + r.path + "/.*",
	} {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			if !strings.HasPrefix(filepath.Base(path), ".") || strings.HasPrefix(path, "/run/lxc/lock") {
				all = append(all, path)
			}
		}
	}
	// A monitor closes its socket shortly before it ends.
	monitors := r.monitors()
	for deadline := time.Now().Add(10 * time.Second); len(monitors) > 0 && time.Now().Before(deadline); monitors = r.monitors() {
		time.Sleep(20 * time.Millisecond)
	}
	return append(all, monitors...)
}

// monitors describes the monitors of the instances.
func (r *rig) monitors() (all []string) {
	out, _ := exec.Command("pgrep", "-af", r.path).Output()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "[lxc monitor]") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// addForeign makes an instance as an administrator would, without a note.
func (r *rig) addForeign(t *testing.T, name string) {
	t.Helper()
	dir := filepath.Join(r.path, name)
	must(t, os.MkdirAll(filepath.Join(dir, "rootfs"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "config"), []byte("# made by hand\nlxc.uts.name = "+name+"\nlxc.rootfs.path = dir:"+dir+"/rootfs\n"), 0o600))
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
}

func find(t *testing.T, broker containerbroker.Broker, name string) containerbroker.Instance {
	t.Helper()
	all, err := broker.List(t.Context(), true)
	must(t, err)
	at := slices.IndexFunc(all, func(i containerbroker.Instance) bool { return i.Name == name })
	if at < 0 {
		t.Fatalf("%s is not listed", name)
	}
	return all[at]
}

// awaiting opens the event stream. The returned function waits for an event of an
// instance.
func awaiting(t *testing.T, broker *lxc.Driver, name string) func(action string) {
	t.Helper()
	events, err := broker.Events(t.Context())
	must(t, err)
	return func(action string) {
		t.Helper()
		deadline := time.After(patience)
		for {
			select {
			case e, open := <-events:
				if !open {
					t.Fatalf("the stream ended before %s", action)
				}
				if e.Instance == name && e.Action == action {
					return
				}
			case <-deadline:
				t.Fatalf("no event %s", action)
			}
		}
	}
}

// freeze freezes an instance. With the freezer of cgroup v1, lxc-freeze waits for
// ever if it froze the child of a vfork before the parent could go on, e.g. of
// udhcpc early in the boot, so freeze tries again after a while.
func (w *world) freeze(t *testing.T, name string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		out, err := exec.CommandContext(ctx, "lxc-freeze", "-P", w.path, "-n", name).CombinedOutput()
		late := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			return
		case !late || time.Now().After(deadline):
			t.Fatalf("cannot freeze %s: %v: %s", name, err, out)
		}
	}
}

func host(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

func folder(t *testing.T) string { return t.TempDir() }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
