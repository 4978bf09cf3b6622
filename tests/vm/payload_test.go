//go:build integration

package vm_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"hostler/tests/harness"
)

// payload makes the file that the machine sees as the disk /dev/vdb: a tar of
// these files under their new names.
func payload(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, file := range files {
		harness.Run(t, "cp", file, filepath.Join(dir, name))
	}
	tar := filepath.Join(t.TempDir(), "payload.tar")
	harness.Run(t, "tar", "-C", dir, "-cf", tar, ".")
	return tar
}

func digest(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))[:12]
}
