package images

import (
	"os"
	"path/filepath"
	"testing"
)

// A small image needs the reserve and its own size, not the space of a whole
// interval between two checks.
func TestSmallDownloadNeedsOnlyItsOwnSpace(t *testing.T) {
	m := newMirror(t)
	data, sum := bigImage(t)
	m.files["/x"] = data
	var free func() int64
	var disk string
	c, _ := m.cache(t, func(o *Options) {
		free = onSmallDisk(t, o, 80)
		disk = filepath.Dir(o.Dir)
	})
	// 4 MiB more than the reserve are left: above the image's 1 MiB, below 8 MiB.
	fill, err := os.Create(filepath.Join(disk, "foreign"))
	if err != nil {
		t.Fatal(err)
	}
	defer fill.Close()
	for free() > 68<<20 {
		if _, err := fill.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	a, err := c.Ensure(t.Context(), m.URL+"/x#sha256="+sum, FormatLXD, nil)
	if err != nil || a.Size != int64(len(data)) {
		t.Errorf("got %+v, %v", a, err)
	}
}
