package kvm

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
)

// W12 I15: a device or processor that another tool took from the running guest
// alone, or gave it, is a difference although the definition is unchanged, and
// its repair is live.
func TestRunningGuestsAreSeenAsTheyRun(t *testing.T) {
	m := machine()
	m.CPUs = 3
	m.NICs = []containerbroker.NIC{{Name: "eth0", Bridge: "br0", MAC: "00:16:3e:00:00:01"}}
	m.Disks = []containerbroker.Disk{{Name: "vol-data", Source: "/dev/loop0", Device: "/dev/hostler-data"}}
	disk := "/dev/loop0 with serial data"
	for _, c := range []struct {
		what   string
		change func(*definition)
		status containerbroker.Status
		want   []containerbroker.Change
	}{
		{"as defined", func(*definition) {}, "", nil},
		{"a disk is taken away", func(d *definition) {
			d.live.domain.Devices.Disks = slices.DeleteFunc(d.live.domain.Devices.Disks, func(d libvirtxml.DomainDisk) bool { return d.Alias != nil })
		}, "", []containerbroker.Change{{Field: "disk vol-data", From: disk + ", not while it runs", To: disk, Impact: containerbroker.ImpactLive}}},
		{"the guest that had it stopped", func(d *definition) { d.live.domain.Devices.Disks = nil }, containerbroker.StatusStopped, nil},
		{"an interface is taken away", func(d *definition) { d.live.domain.Devices.Interfaces = nil }, "", []containerbroker.Change{{
			Field: "nic eth0", From: "bridge br0, mac 00:16:3e:00:00:01, not while it runs", To: "bridge br0, mac 00:16:3e:00:00:01", Impact: containerbroker.ImpactLive,
		}}},
		{"an interface is on another bridge", func(d *definition) { d.live.domain.Devices.Interfaces[0].Source.Bridge.Bridge = "br1" }, "", []containerbroker.Change{{
			Field: "nic eth0", From: "bridge br0, mac 00:16:3e:00:00:01, bridge br1, mac 00:16:3e:00:00:01 while it runs",
			To: "bridge br0, mac 00:16:3e:00:00:01", Impact: containerbroker.ImpactLive,
		}}},
		{"a disk is left in it", func(d *definition) {
			d.live.domain.Devices.Disks = append(d.live.domain.Devices.Disks, dataDisk(containerbroker.Disk{Name: "vol-old", Source: "/dev/loop1", Device: "/dev/hostler-old"}, "vdc"))
		}, "", []containerbroker.Change{{Field: "disk vol-old", From: "/dev/loop1 with serial old, while it runs", Impact: containerbroker.ImpactLive}}},
		{"a processor is unplugged", func(d *definition) { d.live.domain.VCPU.Current = 2 }, "", []containerbroker.Change{
			{Field: "cpus", From: "2", To: "3", Impact: containerbroker.ImpactLive, Stored: true},
		}},
		{"more of them wait for the next start", func(d *definition) { d.live.domain.VCPU.Value, d.live.domain.VCPU.Current = 2, 0 }, "", nil},
		{"fewer of them wait for the next start", func(d *definition) { d.live.domain.VCPU.Current = 4 }, "", nil},
		{"it ended before it was read", func(d *definition) { d.live.domain = nil }, "", nil},
	} {
		defined, err := planned(t, m).domain()
		if err != nil {
			t.Fatal(err)
		}
		runs, err := planned(t, m).domain()
		if err != nil {
			t.Fatal(err)
		}
		def := definition{domain: *defined, note: noteOf(defined.Metadata.XML), live: &life{domain: runs, slots: containerbroker.Unlimited}}
		def.note.Namespace = "" // so that its key is not read
		c.change(&def)
		if c.status == "" {
			c.status = containerbroker.StatusRunning
		}
		d := New(Options{})
		d.keys[""] = []byte("key")
		i, err := d.instanceOf(t.Context(), nil, def, m.Name, c.status)
		if err != nil {
			t.Fatal(err)
		}
		changes := slices.DeleteFunc(d.Diff(m, i), func(c containerbroker.Change) bool {
			return c.Field == containerbroker.FieldRecord || c.Field == containerbroker.FieldUserData
		})
		if diff := cmp.Diff(c.want, changes, cmp.Transformer("empty", func(c []containerbroker.Change) []containerbroker.Change {
			return append([]containerbroker.Change{}, c...)
		})); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
	}
}
