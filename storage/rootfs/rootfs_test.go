package rootfs_test

import (
	"errors"
	"path/filepath"
	"testing"

	"hostler/storage"
	"hostler/storage/rootfs"
	"hostler/storage/storagetest"
)

// S23, Z24: if the last mount went but a process still holds the device, or the
// agent was killed in between, the filesystem shows the device as Held until a
// detach frees it.
func TestHeldDeviceIsReported(t *testing.T) {
	w := storagetest.NewFakeHost(1 << 40)
	volumes := storagetest.NewVolumes(w, "one")
	s := rootfs.New(rootfs.Options{
		Dir: filepath.Join(t.TempDir(), "first"), Volumes: volumes, Filesystems: storagetest.NewFilesystems(w, "one", true),
	})
	r := storage.Ref{ID: "logs", Stamp: storage.Stamp{Namespace: "one", UID: "u1"}}
	held := func(want string) {
		t.Helper()
		all, err := s.List(t.Context())
		if err != nil || len(all) != 1 || all[0].Held != want || len(all[0].Attachments) != 0 {
			t.Errorf("want %q held, have %+v, %v", want, all, err)
		}
	}
	if err := s.Create(t.Context(), []storage.FilesystemParams{{Ref: r, Size: 1 << 20}})[0].Err; err != nil {
		t.Fatal(err)
	}
	held("")
	device := volumes.Attach(t.Context(), []storage.VolumeAttachParams{{Ref: r}})[0].Value.Device
	held(device)
	w.Hold(device, storage.Holder{PID: 7, Command: "sleep", Path: "/var/log/x"})
	var busy *storage.BusyError
	if err := s.Detach(t.Context(), []storage.DetachParams{{Ref: r, Path: "/mounts/logs"}})[0]; !errors.As(err, &busy) {
		t.Errorf("detached while it is held: %v", err)
	}
	held(device)
	w.Hold(device)
	if err := s.Detach(t.Context(), []storage.DetachParams{{Ref: r, Path: "/mounts/logs"}})[0]; err != nil {
		t.Error(err)
	}
	held("")
	if err := s.Destroy(t.Context(), []storage.Ref{r})[0]; err != nil || w.String() != "" {
		t.Errorf("%v, left: %s", err, w)
	}
}
