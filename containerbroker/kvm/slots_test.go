package kvm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hostler/containerbroker"
)

func TestFreeSlots(t *testing.T) {
	port := func(index int) string {
		return fmt.Sprintf("<controller type='pci' index='%d' model='pcie-root-port'><address type='pci' bus='0x00' slot='0x02'/></controller>", index)
	}
	root := "<controller type='pci' index='0' model='pcie-root'/>"
	disk := func(bus string) string {
		return "<disk type='block'><address type='pci' domain='0x0000' bus='" + bus + "' slot='0x00' function='0x0'/></disk>"
	}
	for _, c := range []struct {
		devices string
		want    int
	}{
		{root, 0},
		{root + port(1) + port(2) + port(10), 3},
		{root + port(1) + port(2) + port(10) + disk("0x01") + disk("0x0a"), 1},
		{root + port(1) + "<hostdev><source><address type='pci' bus='0x01'/></source><address type='pci' bus='0x02'/></hostdev>", 1},
		{root + port(1) + "<disk><address type='drive' bus='1'/></disk>", 1},
		{"<controller type='pci' index='0' model='pci-root'/>", containerbroker.Unlimited},
		{"", containerbroker.Unlimited},
	} {
		if got := freeSlots("<domain><devices>" + c.devices + "</devices></domain>"); got != c.want {
			t.Errorf("%d, want %d: %s", got, c.want, c.devices)
		}
	}
	if got := freeSlots("nonsense"); got != containerbroker.Unlimited {
		t.Errorf("nonsense has %d", got)
	}
}

// K4: devices are plugged in live as long as the guest has slots, including
// those that earlier changes free; the others wait for the next start.
func TestDevicesWithoutAPlaceWaitForARestart(t *testing.T) {
	disk := func(n int) containerbroker.Disk {
		return containerbroker.Disk{Name: fmt.Sprint("vol-", n), Source: "/dev/loop0", Device: fmt.Sprint("/dev/hostler-", n)}
	}
	had := machine()
	had.Disks = []containerbroker.Disk{disk(0), disk(1)}
	m := machine()
	m.Disks = []containerbroker.Disk{disk(1), disk(2), disk(3), disk(4)} // 0 goes, 2 to 4 come
	for slots, want := range map[int]string{containerbroker.Unlimited: "live live live live", 0: "live live restart restart", 1: "live live live restart", 2: "live live live live"} {
		s, err := settingsOf(had)
		if err != nil {
			t.Fatal(err)
		}
		i := containerbroker.Instance{Stored: s, Running: &s, Room: &containerbroker.Room{CPUs: 1, Devices: slots}, Raw: raw{}}
		for range 2 { // asking takes no slot
			var got []string
			for _, c := range (&Driver{}).Diff(m, i) {
				got = append(got, string(c.Impact))
				if c.Impact == containerbroker.ImpactRestart && c.Reason == "" {
					t.Errorf("%s has no reason", c.Field)
				}
			}
			if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
				t.Errorf("%d places: %s", slots, diff)
			}
		}
	}
}
