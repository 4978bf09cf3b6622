//go:build integration

package kvm_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
)

// Z24: a disk that a running guest has mounted stays attached, and the error names
// the mount point. After the unmount the disk is detached.
func TestMountedDiskStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.broker("hostler")
	m := r.machine(d, "guest")
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	image := filepath.Join(t.TempDir(), "image")
	host(t, "/usr/bin/genisoimage", "-quiet", "-o", image, dir)
	must(t, d.Create(t.Context(), m, nil))
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	_, err := d.WaitReady(t.Context(), m, nil)
	must(t, err)
	// The guest mounts every disk that it finds when it boots.
	without := m
	m.Disks = []containerbroker.Disk{{Name: "vol-data", Source: brokertest.Loop(t, image), Device: "/dev/hostler-data"}}
	must(t, d.Update(t.Context(), m, d.Diff(m, get(t, d, m.Name))))
	inGuest := func(script string) {
		t.Helper()
		var out strings.Builder
		code, err := d.Exec(t.Context(), m.Name, containerbroker.ExecRequest{Command: []string{"/bin/sh", "-ec", script}, Stdout: &out, Stderr: &out})
		if err != nil || code != 0 {
			t.Fatalf("exit code %d, %v: %s", code, err, out.String())
		}
	}
	// The guest has no udev, so the script writes udev's record of the disk.
	inGuest(`until [ "$disk" ]; do for d in /sys/block/vd*; do [ "$(cat $d/serial)" != data ] || disk=${d##*/}; done; done
mkdir -p /run/udev/data /srv
echo E:ID_SERIAL=data >/run/udev/data/b$(cat /sys/block/$disk/dev)
mount -r -t iso9660 /dev/$disk /srv`)

	update := func() error { return d.Update(t.Context(), without, d.Diff(without, get(t, d, m.Name))) }
	began := time.Now()
	if err := update(); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "disk vol-data: the guest has it mounted on /srv; unmount it in the guest") {
		t.Errorf("after %v: %v", time.Since(began).Round(time.Second), err)
	}
	inGuest("test -e /srv/file && umount /srv")
	must(t, update())
	if changes := d.Diff(without, get(t, d, m.Name)); len(changes) != 0 {
		t.Errorf("detached, it differs: %+v", changes)
	}
}
