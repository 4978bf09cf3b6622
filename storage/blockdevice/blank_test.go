package blockdevice

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Without extents Blank reads the whole device with progress; only the caller
// can cancel it.
func TestBlankReadsEverything(t *testing.T) {
	var seen int64
	if blank, _, err := Blank(t.Context(), bytes.NewReader(make([]byte, disk)), disk, func(done, total int64) {
		if total != disk || done <= seen {
			t.Errorf("progress %d of %d after %d", done, total, seen)
		}
		seen = done
	}); !blank || err != nil || seen != disk {
		t.Errorf("blank %v, %v, read %d", blank, err, seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if blank, _, err := Blank(ctx, bytes.NewReader(make([]byte, disk)), disk, nil); blank || !errors.Is(err, context.Canceled) {
		t.Errorf("ended on the way: blank %v, %v", blank, err)
	}
}

// Data in a sparse file is found at any offset, and holes are skipped.
func TestDataOfSparseFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "volume"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size, place = 1 << 40, 5<<30 + 4096
	if err := errors.Join(f.Truncate(size), func() error { _, err := f.WriteAt([]byte("data"), place); return err }()); err != nil {
		t.Fatal(err)
	}
	start, end, err := dataOf(f, 0, size)
	if err != nil || start > place || end <= place || end-start > 1<<20 {
		t.Errorf("data from %d to %d, %v", start, end, err)
	}
	if start, _, err := dataOf(f, end, size); start != size || err != nil {
		t.Errorf("more data at %d, %v", start, err)
	}
	next := func(from int64) (int64, int64, error) { return dataOf(f, from, size) }
	if zero, err := allZero(t.Context(), f, size, next, nil); zero || err != nil {
		t.Errorf("all zero: %v, %v", zero, err)
	}
}
