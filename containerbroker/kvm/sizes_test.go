package kvm

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hostler/containerbroker"
)

// W10: a grown volume is larger in the guest only after libvirt announces the
// size. Until then the disk differs, and the plan shows how.
func TestADiskThatGrewDiffers(t *testing.T) {
	m := machine()
	m.Disks = []containerbroker.Disk{{Name: "vol-data", Source: "/dev/loop0", Device: "/dev/hostler-data", Size: 1 << 30}}
	n := planned(t, m).note
	n.Sizes = sizesOf(m)
	text, err := n.text()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what     string
		sizes    map[string]int64
		size     int64
		readOnly bool
		from, to string
	}{
		{"as it was", noteOf(text).Sizes, 1 << 30, false, "", ""},
		{"grown", noteOf(text).Sizes, 2 << 30, false, "/dev/loop0 with serial data, of 1GiB", "/dev/loop0 with serial data, of 2GiB"},
		{"never announced", nil, 2 << 30, false, "/dev/loop0 with serial data", "/dev/loop0 with serial data, of 2GiB"},
		{"not known", noteOf(text).Sizes, 0, false, "", ""},
		{"not to be written, never noted", nil, 2 << 30, true, "", ""},
		{"not to be written", noteOf(text).Sizes, 2 << 30, true, "/dev/loop0 with serial data, read-only, of 1GiB", "/dev/loop0 with serial data, read-only, of 2GiB"},
	} {
		m.Disks[0].Size, m.Disks[0].ReadOnly = c.size, c.readOnly
		s, err := settingsOf(m)
		if err != nil {
			t.Fatal(err)
		}
		var want []containerbroker.Change
		if c.to != "" {
			want = []containerbroker.Change{{Field: "disk vol-data", From: c.from, To: c.to, Impact: containerbroker.ImpactLive}}
		}
		if c.readOnly && c.to != "" {
			want[0].Impact, want[0].Reason = containerbroker.ImpactRestart, "a running guest does not see a new size of a read-only disk"
		}
		before := s.Disks["vol-data"]
		i := containerbroker.Instance{Raw: raw{settings: s, sizes: c.sizes}}
		if diff := cmp.Diff(want, (&Driver{}).Diff(m, i)); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
		if s.Disks["vol-data"] != before {
			t.Errorf("%s: the instance became %v", c.what, s.Disks)
		}
	}
}
