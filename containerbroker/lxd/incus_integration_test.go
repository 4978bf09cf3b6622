//go:build integration

package lxd_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/containerbroker/lxd"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/fault"
)

// The behaviours in which Incus differs from LXD. The other tests of this
// package run on Incus where HOSTLER_TEST_DAEMON names it.
func TestIncus(t *testing.T) {
	t.Parallel()
	server := lxdtest.StartWith(t, lxdtest.Options{Daemon: lxdtest.Incus, Driver: "dir"})
	src := &source{artifacts: map[string]images.Artifact{}}
	d := lxd.New(lxd.Options{Dialect: lxd.Incus, Socket: server.Socket, Namespace: "hostler", Images: src})
	tarball := filepath.Join(t.TempDir(), "image.tar")
	must(t, lxdtest.BuildTiny(tarball, strings.Replace(lxdtest.TinyInit, "echo init up\n", "echo init up\n[ ! -e /die ] || { echo all is lost; sleep 1; exit 1; }\n", 1)))
	sum, size := digest(t, tarball)
	src.artifacts["tiny/one"] = images.Artifact{Digest: sum, Path: tarball, Size: size}
	id, err := d.EnsureImage(t.Context(), "tiny/one", nil)
	must(t, err)
	all, err := d.ListImages(t.Context())
	must(t, err)
	ours := 0
	for _, i := range all {
		if i.ID == id && i.Ours && i.Reference == "tiny/one" {
			ours++
		}
	}
	if ours != 1 {
		t.Errorf("the images are %+v", all)
	}

	m := machine("mortal", id, "token")
	must(t, d.Create(t.Context(), m, nil))
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	_, err = d.WaitReady(t.Context(), m, nil)
	must(t, err)
	for command, want := range map[string]int{"/no/such": 127, "/etc": 126} {
		var text bytes.Buffer
		code, err := d.Exec(t.Context(), m.Name, containerbroker.ExecRequest{Command: []string{command}, Stderr: &text})
		if err != nil || code != want || !strings.Contains(text.String(), command+": ") {
			t.Errorf("%s: %d, %v, %q", command, code, err, &text)
		}
	}
	works(t, d, m.Name, "touch /die")
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStop, 0))
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	dead := make(chan error, 1)
	go func() {
		_, err := d.WaitReady(t.Context(), m, nil)
		dead <- err
	}()
	// A listing never lacks the stamp, not even while Incus notices the death.
	for deadline := time.Now().Add(30 * time.Second); ; {
		found, err := d.List(t.Context(), true)
		must(t, err)
		if len(found) != 1 || found[0].Stamp == nil || found[0].Stamp.UID != m.Stamp.UID {
			t.Fatalf("listed: %+v", found)
		}
		if found[0].Status == containerbroker.StatusStopped {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is %s", found[0].Status)
		}
	}
	if err := <-dead; !fault.Is(err, fault.Transient) || !strings.Contains(containerbroker.Console(err), "all is lost") {
		t.Errorf("%v, console %q", err, containerbroker.Console(err))
	}
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
}
