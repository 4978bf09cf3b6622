//go:build integration

package loop_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"hostler/storage/loop"
	"hostler/storage/storagetest"
)

// The source keeps the contract on every kind of host filesystem, with real
// devices.
func TestConformance(t *testing.T) {
	for _, host := range storagetest.Hosts {
		t.Run(host, func(t *testing.T) {
			dir := filepath.Join(storagetest.Host(t, host, 256*storagetest.MiB), "volumes")
			storagetest.RunVolumes(t, storagetest.VolumeHarness{
				Source: source(dir, "one"), Other: source(dir, "two"), Namespace: "one", OtherNamespace: "two",
				Real: true, TooLarge: 4 << 30, Use: use,
			})
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func source(dir, namespace string) *loop.Source {
	return loop.New(loop.Options{Dir: dir, Namespace: namespace})
}

// use keeps a device busy with a separate process.
func use(t *testing.T, device string) func() {
	t.Helper()
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("/bin/sleep", "600")
	holder.ExtraFiles = []*os.File{f}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	release := func() { _, _ = holder.Process.Kill(), holder.Wait() }
	t.Cleanup(release)
	return release
}
