package kvm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
	"hostler/internal/fault"
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
		s.Sizes = c.sizes
		i := containerbroker.Instance{Stored: s, Raw: raw{}}
		if diff := cmp.Diff(want, (&Driver{}).Diff(m, i)); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
		if s.Disks["vol-data"] != before {
			t.Errorf("%s: the instance became %v", c.what, s.Disks)
		}
	}
}

func domainOf(t *testing.T, inner string) *libvirtxml.Domain {
	t.Helper()
	d := &libvirtxml.Domain{}
	if err := d.Unmarshal("<domain type='kvm'><name>web</name>" + inner + "</domain>"); err != nil {
		t.Fatal(err)
	}
	return d
}

// Memory that libvirt computes from NUMA cells is changed in the cells:
// otherwise the guest would never get it, even after a restart (W12).
func TestMemoryOfNUMACells(t *testing.T) {
	const one = "<memory unit='GiB'>2</memory><cpu><numa><cell id='0' cpus='0-1' memory='2' unit='GiB'/></numa></cpu>"
	const two = "<memory unit='GiB'>2</memory><cpu><numa><cell id='0' cpus='0' memory='1048576'/><cell id='1' cpus='1' memory='1048576'/></numa></cpu>"
	for what, c := range map[string]struct {
		inner                string
		want                 int64
		total, current, cell int64
		refused              string
	}{
		"none":                    {inner: "<memory unit='GiB'>2</memory>", want: 4 << 30, total: 4 << 30, current: 4 << 30},
		"one, more":               {inner: one, want: 4 << 30, total: 4 << 30, current: 4 << 30, cell: 4 << 30},
		"one, less":               {inner: one, want: 1 << 30, total: 2 << 30, current: 1 << 30, cell: 2 << 30},
		"one and a module":        {inner: strings.Replace(one, "<memory unit='GiB'>2", "<memory unit='GiB'>3", 1), want: 4 << 30, total: 4 << 30, current: 4 << 30, cell: 3 << 30},
		"two, more":               {inner: two, want: 4 << 30, refused: "2 NUMA cells"},
		"two, less":               {inner: two, want: 1 << 30, total: 2 << 30, current: 1 << 30, cell: 1 << 30},
		"two, as they were":       {inner: two, want: 2 << 30, total: 2 << 30, current: 2 << 30, cell: 1 << 30},
		"an empty list":           {inner: "<memory unit='GiB'>2</memory><cpu><numa/></cpu>", want: 1 << 30, total: 1 << 30, current: 1 << 30},
		"no memory in the domain": {want: 1 << 30, total: 1 << 30, current: 1 << 30},
	} {
		d := domainOf(t, c.inner)
		err := setMemory(d, c.want)
		if c.refused != "" {
			if !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), "2048 MiB") {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		var cell int64
		if c.cell > 0 {
			cell = bytesOf(d.CPU.Numa.Cell[0].Memory, d.CPU.Numa.Cell[0].Unit)
		}
		total, current := bytesOf(d.Memory.Value, d.Memory.Unit), bytesOf(d.CurrentMemory.Value, d.CurrentMemory.Unit)
		if err != nil || total != c.total || current != c.current || cell != c.cell {
			t.Errorf("%s: total %d, current %d, cell %d, %v", what, total>>20, current>>20, cell>>20, err)
		}
	}
}

// A topology has exactly as many places as the maximum of processors: libvirt
// refuses anything else, also for processors to be plugged in later.
func TestProcessorsOfATopology(t *testing.T) {
	const cpu = "<vcpu placement='static' cpuset='0-3' current='2'>4</vcpu><cpu><topology sockets='2' dies='1' cores='2' threads='1'/></cpu>"
	for n, want := range map[int]string{1: "4/1/2", 3: "4/3/2", 4: "4/0/2", 5: "6/5/3", 6: "6/0/3", 9: "10/9/5"} {
		d := domainOf(t, cpu)
		setCPUs(d, n)
		if got := fmt.Sprintf("%d/%d/%d", d.VCPU.Value, d.VCPU.Current, d.CPU.Topology.Sockets); got != want || d.VCPU.CPUSet != "0-3" {
			t.Errorf("%d processors: %s, want %s; %+v", n, got, want, d.VCPU)
		}
	}
	cells := domainOf(t, "<vcpu>4</vcpu><cpu><numa><cell id='0' cpus='0-3' memory='1' unit='GiB'/></numa></cpu>")
	if setCPUs(cells, 2); cells.VCPU.Value != 4 || cells.VCPU.Current != 2 {
		t.Errorf("with NUMA cells: %+v", cells.VCPU)
	}
	plain := domainOf(t, "<vcpu>1</vcpu>")
	if setCPUs(plain, 2); plain.VCPU.Value < 4 || plain.VCPU.Current != 2 {
		t.Errorf("with no topology there are places for more: %+v", plain.VCPU)
	}
}
