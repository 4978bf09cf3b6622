//go:build integration

package lxd_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/lxd"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/fault"
)

// F11: after a power cut, a new container could get the files of a container
// that LXD has forgotten, or could not be made. hostler's own files are set
// aside and kept. Files that LXD knows, and files that another tool could
// recover, stay.
func TestForgottenContainers(t *testing.T) {
	for _, driver := range []string{"btrfs", "dir"} {
		t.Run(driver, func(t *testing.T) { forgottenContainers(t, driver) })
	}
}

func forgottenContainers(t *testing.T, driver string) {
	server := lxdtest.StartWith(t, lxdtest.Options{Driver: driver})
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler"})
	pool := filepath.Join(filepath.Dir(server.Socket), "storage-pools", server.Pool)
	files := func(name string) string { return filepath.Join(pool, "containers", name) }
	known := machine("known", server.TinyFingerprint, "one")
	must(t, d.Create(t.Context(), known, nil))
	stale := filepath.Join("rootfs", "stale")
	must(t, os.WriteFile(filepath.Join(files("known"), stale), nil, 0o600))
	foreign := machine("foreign", server.TinyFingerprint, "one")
	foreign.Stamp.Namespace = "another"
	must(t, d.Create(t.Context(), foreign, nil))
	// forget leaves the files of an instance under a name that LXD does not
	// know.
	forget := func(from, name string) {
		t.Helper()
		copied := []string{"cp", "-a", files(from), files(name)}
		if driver == "btrfs" {
			copied = []string{"btrfs", "-q", "subvolume", "snapshot", files(from), files(name)}
		}
		if out, err := exec.Command(copied[0], copied[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	forget("known", "ours")
	forget("foreign", "theirs")
	forget("known", "bare")
	must(t, os.Remove(filepath.Join(files("bare"), "backup.yaml")))
	forget("known", "torn")
	must(t, os.WriteFile(filepath.Join(files("torn"), "backup.yaml"), nil, 0o400))
	// A container of another project has the project's name as a prefix.
	must(t, server.API(http.MethodPost, "/1.0/projects", map[string]any{"name": "side", "config": map[string]string{"features.images": "false", "features.profiles": "false"}}, nil))
	defer func() {
		must(t, server.API(http.MethodDelete, "/1.0/instances/other?project=side", nil, nil))
		must(t, server.API(http.MethodDelete, "/1.0/projects/side", nil, nil))
	}()
	must(t, server.API(http.MethodPost, "/1.0/instances?project=side", map[string]any{
		"name": "other", "source": map[string]string{"type": "image", "fingerprint": server.TinyFingerprint},
		"config": map[string]string{"user.hostler.namespace": "hostler", "user.hostler.uid": "x"},
	}, nil))

	// LXD deletes a container's record of files before the container.
	halfway := machine("halfway", server.TinyFingerprint, "one")
	must(t, d.Create(t.Context(), halfway, nil))
	must(t, os.WriteFile(filepath.Join(files("halfway"), stale), nil, 0o600))
	must(t, server.API(http.MethodPost, "/internal/sql", map[string]any{"database": "global", "query": "DELETE FROM storage_volumes WHERE name = 'halfway'"}, nil))

	aside, more, err := d.MoveLeftovers(t.Context())
	must(t, err)
	if more {
		t.Error("some of it is to be cleared later, though LXD is at rest")
	}
	must(t, d.Delete(t.Context(), halfway.Name, halfway.Stamp))
	var names []string
	for _, place := range aside {
		if _, err := os.Stat(filepath.Join(place, stale)); err != nil {
			t.Errorf("not kept: %v", err)
		}
		name, _, _ := strings.Cut(filepath.Base(place), ".")
		names = append(names, name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"bare", "halfway", "ours", "torn"}) {
		t.Errorf("set aside: %q", aside)
	}
	for _, stays := range []string{"known", "foreign", "theirs", "side_other"} {
		if _, err := os.Stat(files(stays)); err != nil {
			t.Errorf("it does not stay: %v", err)
		}
	}
	if again, more, err := d.MoveLeftovers(t.Context()); err != nil || more || len(again) != 0 {
		t.Errorf("again: %q, %v", again, err)
	}
	for _, name := range names {
		m := machine(name, server.TinyFingerprint, "two")
		must(t, d.Create(t.Context(), m, nil))
		if _, err := os.Stat(filepath.Join(files(name), stale)); err == nil {
			t.Errorf("the new container %s has what a former one had", name)
		}
		must(t, d.Delete(t.Context(), name, m.Stamp))
	}
	must(t, d.Delete(t.Context(), known.Name, known.Stamp))
	must(t, d.Delete(t.Context(), foreign.Name, foreign.Stamp))
	forget("theirs", "ours")
	if aside, more, err = d.MoveLeftovers(t.Context()); err != nil || more || len(aside) != 0 {
		t.Errorf("another's: %q, %v", aside, err)
	}
}

// F11: files without a readable owner may belong to a container that LXD is
// making. They stay while LXD is busy, and MoveLeftovers reports that more may
// follow, so that they are not left for ever.
func TestForgottenContainersWaitForAnIdleLXD(t *testing.T) {
	t.Parallel()
	server := lxdtest.Start(t)
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler"})
	m := machine("web", server.TinyFingerprint, "one")
	must(t, d.Create(t.Context(), m, nil))
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, time.Minute))
	containers := filepath.Join(filepath.Dir(server.Socket), "storage-pools", server.Pool, "containers")
	bare := filepath.Join(containers, "bare")
	if out, err := exec.Command("btrfs", "-q", "subvolume", "create", bare).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	worked := make(chan error, 1)
	go func() {
		worked <- server.API(http.MethodPost, "/1.0/instances/web/exec", map[string]any{"command": []string{"sh", "-c", "until [ -e /done ]; do sleep 1; done"}}, nil)
	}()
	for atWork, began := false, time.Now(); !atWork; time.Sleep(20 * time.Millisecond) {
		var all map[string][]any
		must(t, server.API(http.MethodGet, "/1.0/operations?recursion=1", nil, &all))
		if atWork = len(all["running"]) > 0; !atWork && time.Since(began) > time.Minute {
			t.Fatal("LXD does not work")
		}
	}
	// An import also has a stamp in its files before LXD records it.
	stamped := filepath.Join(containers, "stamped")
	if out, err := exec.Command("btrfs", "-q", "subvolume", "snapshot", filepath.Join(containers, "web"), stamped).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if aside, more, err := d.MoveLeftovers(t.Context()); err != nil || !more || len(aside) != 0 {
		t.Errorf("LXD is busy: set aside %q, more %v, %v", aside, more, err)
	}
	// Meanwhile nothing is made in their place.
	if err := d.Create(t.Context(), machine("bare", server.TinyFingerprint, "one"), nil); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), bare) {
		t.Errorf("a new container in the place of a former one's files: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(containers, "web", "rootfs", "done"), nil, 0o600))
	must(t, <-worked)
	if aside, more, err := d.MoveLeftovers(t.Context()); err != nil || more || len(aside) != 2 {
		t.Errorf("LXD is at rest: set aside %q, more %v, %v", aside, more, err)
	}
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStop, time.Minute))
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
}

// F11: when the host boots, LXD starts a container whose creation a power cut
// ended before it had files. The resulting folder in a btrfs pool is no
// subvolume, so LXD could not delete the container.
func TestContainerWithoutFilesIsDeleted(t *testing.T) {
	t.Parallel()
	server := lxdtest.StartWith(t, lxdtest.Options{Driver: "btrfs"})
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler"})
	m := machine("web", server.TinyFingerprint, "one")
	must(t, d.Create(t.Context(), m, nil))
	files := filepath.Join(filepath.Dir(server.Socket), "storage-pools", server.Pool, "containers", "web")
	if out, err := exec.Command("btrfs", "-q", "subvolume", "delete", files).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, os.Mkdir(files, 0o711))
	if err := d.Delete(t.Context(), m.Name, m.Stamp); err == nil {
		t.Fatal("LXD deletes it by itself: nothing is to be done for it")
	}
	if aside, more, err := d.MoveLeftovers(t.Context()); err != nil || more || len(aside) != 0 {
		t.Errorf("set aside: %q, %v", aside, err)
	}
	if _, err := os.Stat(files); err == nil {
		t.Error("the empty folder is still there")
	}
	must(t, os.Mkdir(files, 0o711))
	must(t, os.WriteFile(filepath.Join(files, "note"), nil, 0o600))
	if aside, more, err := d.MoveLeftovers(t.Context()); err != nil || more || len(aside) != 1 {
		t.Errorf("set aside: %q, %v", aside, err)
	}
	// A folder that the administrator copied into the pool can be started.
	must(t, os.MkdirAll(filepath.Join(files, "rootfs"), 0o711))
	if aside, more, err := d.MoveLeftovers(t.Context()); err != nil || more || len(aside) != 0 {
		t.Errorf("set aside: %q, %v", aside, err)
	}
	must(t, os.RemoveAll(files))
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
	must(t, d.Create(t.Context(), m, nil))
	if aside, more, err := d.MoveLeftovers(t.Context()); err != nil || more || len(aside) != 0 {
		t.Errorf("set aside: %q, %v", aside, err)
	}
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
}
