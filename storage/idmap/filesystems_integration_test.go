//go:build integration

package idmap

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The kernel's ext4, xfs and btrfs translate owners.
func TestViewsOfFilesystems(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			image, source := filepath.Join(dir, "image"), filepath.Join(dir, "source")
			f, err := os.Create(image)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Truncate(400 << 20); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(source, 0o755); err != nil {
				t.Fatal(err)
			}
			command := func(name string, args ...string) {
				if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", name, err, out)
				}
			}
			command("mkfs."+kind, "-q", image)
			command("mount", "-o", "loop", image, source)
			t.Cleanup(func() { command("umount", "-l", source) })
			shows(t, aView(t, dir), source)
		})
	}
}
