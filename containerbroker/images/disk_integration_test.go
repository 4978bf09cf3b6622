//go:build integration

package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// K2: disks are accepted as qcow2 and as raw. Disks that name another file, and
// disks of other formats, are refused (RELIABILITY 4.5).
func TestDisksAreAcceptedAsQcow2AndRaw(t *testing.T) {
	dir := t.TempDir()
	img := func(args ...string) {
		t.Helper()
		if _, err := (run.Host{}).Run(t.Context(), run.Command{Path: paths.QemuImg, Args: args, Dir: dir}); err != nil {
			t.Fatal(err)
		}
	}
	raw := make([]byte, 4<<20)
	raw[510], raw[511] = 0x55, 0xaa
	if err := os.WriteFile(filepath.Join(dir, "good.raw"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "empty.raw"), make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	img("convert", "-f", "raw", "-O", "qcow2", "good.raw", "good.qcow2")
	img("create", "-q", "-f", "qcow2", "-b", "good.qcow2", "-F", "qcow2", "backed.qcow2")
	img("create", "-q", "-f", "qcow2", "-o", "data_file=outside.raw,data_file_raw=on", "outside.qcow2", "1M")
	img("convert", "-f", "raw", "-O", "vmdk", "good.raw", "other.vmdk")
	cache, err := Open(Options{Dir: t.TempDir(), Sources: []string{"local"}, Runner: run.Host{}})
	if err != nil {
		t.Fatal(err)
	}
	for name, good := range map[string]bool{
		"good.raw": true, "good.qcow2": true,
		"empty.raw": false, "backed.qcow2": false, "outside.qcow2": false, "other.vmdk": false,
	} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		ref := "file:" + filepath.Join(dir, name) + "#sha256=" + hex.EncodeToString(sum[:])
		a, err := cache.Ensure(context.Background(), ref, FormatDisk, nil)
		if good && (err != nil || a.Format != FormatDisk) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
		if !good && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "refused")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
