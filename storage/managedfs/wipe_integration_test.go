//go:build integration

package managedfs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/storagetest"
)

// Z23: data anywhere on a volume prevents a filesystem, on each type of host
// filesystem. Only blocks that were ever written are read to prove a volume
// blank.
func TestDataAnywhereIsNotBlank(t *testing.T) {
	for _, kind := range storagetest.Hosts {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t, storagetest.Host(t, kind, 192*mib), nil)
			device := b.device("data", 64*mib)
			f, err := os.OpenFile(device, os.O_WRONLY, 0)
			b.must(err)
			_, err = f.WriteAt([]byte(strings.Repeat("precious", 25<<10)), 5*mib+8<<10)
			b.must(err)
			b.must(f.Close())
			if _, err := b.create("data", "ext4", device, false); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "data of an unknown kind") {
				t.Errorf("got %v", err)
			}
			// Written zeros are proven blank by reading only them.
			f, err = os.OpenFile(device, os.O_WRONLY, 0)
			b.must(err)
			_, err = f.WriteAt(make([]byte, mib), 5*mib)
			b.must(err)
			b.must(f.Close())
			var read []string
			b.must(b.source.Create(t.Context(), []storage.FilesystemParams{{
				Ref: ref("data"), Type: "ext4", Device: device, Progress: func(m string) { read = append(read, m) },
			}})[0].Err)
			if len(read) == 0 || len(read) > 20 || !strings.Contains(read[0], "prove that it is blank") {
				t.Errorf("progress: %q", read)
			}
		})
	}
}

// A "wipe: true" that stays in a document applies to one format only: the
// filesystem declared again is refused because of the data, until the key is
// removed and set again.
func TestWipeHoldsForOneFormat(t *testing.T) {
	b := newBench(t, storagetest.Dir(t), nil)
	device := b.device("data", 128*mib)
	b.must(os.WriteFile(device, []byte("somebody's"), 0o600))
	_, err := b.create("data", "ext4", device, true)
	b.must(err)
	b.must(b.attach("data", device))
	b.must(os.WriteFile(filepath.Join(b.path("data"), "file"), []byte("kept"), 0o600))
	b.must(b.source.Detach(t.Context(), []storage.DetachParams{{Ref: ref("data")}})[0])
	b.must(b.source.Destroy(t.Context(), []storage.Ref{ref("data")})[0])

	// Another type on the same volume is another filesystem, even with the
	// stamp of the first.
	again := storage.FilesystemParams{Ref: ref("data"), Type: "btrfs", Device: device, Wipe: true}
	create := func() error {
		return b.source.Create(t.Context(), []storage.FilesystemParams{again})[0].Err
	}
	before := head(t, device)
	if err := create(); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "was already used") || head(t, device) != before {
		t.Fatalf("wiped once more: %v", err)
	}
	again.Wipe = false
	if err := create(); !fault.Is(err, fault.NeedsOperator) || strings.Contains(err.Error(), "was already used") || head(t, device) != before {
		t.Fatalf("without the key: %v", err)
	}
	again.Wipe = true
	b.must(create())

	// An interrupted creation continues with its own "wipe: true".
	b.must(b.source.Destroy(t.Context(), []storage.Ref{ref("data")})[0])
	again.Wipe, again.Type = false, "ext4"
	if err := create(); !fault.Is(err, fault.NeedsOperator) {
		t.Fatalf("without the key: %v", err)
	}
	again.Wipe = true
	killed := newBench(t, b.dir, killing{})
	if _, err := killed.create("data", "ext4", device, true); err == nil {
		t.Fatal("was not killed")
	}
	b.must(create())

	// The same filesystem, with lost records and foreign data on its volume.
	b.must(os.Remove(filepath.Join(b.dir, "records", "data.json")))
	b.must(os.WriteFile(device, []byte(strings.Repeat("foreign ", 16<<10)), 0o600))
	again.Anew = true
	if err := create(); !fault.Is(err, fault.NeedsOperator) || !strings.HasPrefix(head(t, device), "foreign ") {
		t.Fatalf("wiped what came later: %v", err)
	}
}
