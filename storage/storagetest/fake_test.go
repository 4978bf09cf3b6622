package storagetest_test

import (
	"testing"

	"hostler/storage"
	"hostler/storage/storagetest"
)

// The fake sources keep the contract too.
func TestFakeVolumes(t *testing.T) {
	w := storagetest.NewFakeHost(1 << 40)
	storagetest.RunVolumes(t, storagetest.VolumeHarness{
		Source: storagetest.NewVolumes(w, "one"), Other: storagetest.NewVolumes(w, "two"), Namespace: "one", OtherNamespace: "two",
		TooLarge: 2 << 40,
		Use: func(_ *testing.T, device string) func() {
			w.Hold(device, storage.Holder{PID: 1, Command: "dd", Path: device})
			return func() { w.Hold(device) }
		},
	})
	if left := w.String(); left != "" {
		t.Error(left)
	}
}

func TestFakeFilesystems(t *testing.T) {
	w := storagetest.NewFakeHost(1 << 40)
	storagetest.RunFilesystems(t, storagetest.FilesystemHarness{
		Source: storagetest.NewFilesystems(w, "one", false), Other: storagetest.NewFilesystems(w, "two", false),
		Namespace: "one", OtherNamespace: "two", Mounts: "/mounts",
		Params: func(_ *testing.T, r storage.Ref) storage.FilesystemParams {
			return storage.FilesystemParams{Ref: r, Size: 1 << 20}
		},
		Grow: func(*testing.T, storage.Ref) int64 { return 2 << 20 },
	})
	if left := w.String(); left != "" {
		t.Error(left)
	}
}
