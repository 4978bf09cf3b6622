//go:build integration

package lxc_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/lxc"
	"hostler/internal/fault"
)

// A guest that reboots loses what was plugged in since its start, because its
// monitor keeps its old settings. The listing shows that, and an update plugs it
// in again.
func TestRebootFromInside(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "reboots")
	m.NICs = []containerbroker.NIC{{Name: "eth0", Bridge: w.bridge, MAC: "00:16:3e:00:78:01"}}
	pid := w.start(t, m)
	m.NICs[0].MAC = "00:16:3e:00:78:02" // its monitor knows the address before
	m.NICs = append(m.NICs, containerbroker.NIC{Name: "lan", Bridge: w.bridge, MAC: "00:16:3e:00:78:03"})
	share := folder(t)
	must(t, os.Chmod(share, 0o777))
	m.Disks = []containerbroker.Disk{
		{Name: "fs-www", Source: share, Path: "/srv/two words"}, {Name: "vol-data", Source: brokertest.Device(t), Device: "/dev/hostler-data"},
	}
	w.apply(t, m)
	if left := w.d.Diff(m, find(t, w.d, m.Name)); len(left) > 0 {
		t.Fatalf("before the reboot: %+v", left)
	}
	w.reboot(t, m.Name, pid)
	var fields []string
	for _, c := range w.d.Diff(m, find(t, w.d, m.Name)) {
		fields = append(fields, c.Field)
		if c.Impact != containerbroker.ImpactLive || !strings.Contains(c.From, "not while it runs") {
			t.Errorf("after the reboot: %+v", c)
		}
	}
	if got := strings.Join(fields, ", "); got != "disk fs-www, disk vol-data, nic eth0, nic lan" {
		t.Errorf("it lacks %s", got)
	}
	w.apply(t, m)
	if left := w.d.Diff(m, find(t, w.d, m.Name)); len(left) > 0 {
		t.Errorf("plugged in again: %+v", left)
	}
	w.says(t, m.Name, "cat /sys/class/net/eth0/address /sys/class/net/lan/address; touch '/srv/two words/x' /dev/hostler-data && head -c 1 /dev/hostler-data | wc -c",
		"00:16:3e:00:78:02\n00:16:3e:00:78:03\n1")
}

// A guest that was started with disks does not reboot but stops, so that its next init
// finds them. Without them it reboots.
func TestRebootFromInsideWithDisks(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "stops")
	m.Disks = []containerbroker.Disk{{Name: "vol-data", Source: brokertest.Device(t), Device: "/dev/hostler-data"}}
	w.start(t, m)
	ended := awaiting(t, w.d, m.Name)
	w.inside(t, m.Name, "reboot -f")
	ended("ended")
	within(t, "it did not stop", func() bool { return find(t, w.d, m.Name).Status == containerbroker.StatusStopped })
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	w.says(t, m.Name, "head -c 1 /dev/hostler-data | wc -c", "1")
	m.Disks = nil
	w.apply(t, m)
	w.reboot(t, m.Name, find(t, w.d, m.Name).PID)
}

// A guest that reboots gets back the limits of its start. The listing shows them,
// and an update sets those of the machine again.
func TestLimitsAfterARebootFromInside(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "limits")
	pid := w.start(t, m)
	m.CPUs, m.Memory = 2, 32<<20
	w.apply(t, m)
	if left := w.d.Diff(m, find(t, w.d, m.Name)); len(left) > 0 {
		t.Fatalf("before the reboot: %+v", left)
	}
	w.reboot(t, m.Name, pid)
	left := w.d.Diff(m, find(t, w.d, m.Name))
	if len(left) != 2 || left[0].Field != containerbroker.FieldCPUs || left[0].Impact != containerbroker.ImpactLive || left[1].Field != containerbroker.FieldMemory {
		t.Errorf("after the reboot: %+v", left)
	}
	w.apply(t, m)
	if left := w.d.Diff(m, find(t, w.d, m.Name)); len(left) > 0 {
		t.Errorf("after an update: %+v", left)
	}
	m.CPUs, m.Memory = 0, 0
	w.apply(t, m)
	if left := w.d.Diff(m, find(t, w.d, m.Name)); len(left) > 0 {
		t.Errorf("without limits: %+v", left)
	}
}

// A limit below the memory in use is refused while the guest runs. It is stored, so
// the next start makes it.
func TestLimitBelowTheMemoryInUse(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "greedy")
	w.start(t, m)
	w.says(t, m.Name, "mount -t tmpfs none /mnt && head -c 40000000 /dev/zero >/mnt/file && echo written", "written")
	m.Memory = 16 << 20
	if err := w.d.Update(t.Context(), m, w.d.Diff(m, find(t, w.d, m.Name))); !fault.Is(err, fault.Transient) {
		t.Errorf("the limit: %v", err)
	}
	if left := w.d.Diff(m, find(t, w.d, m.Name)); len(left) != 1 || left[0].Field != containerbroker.FieldMemory || !left[0].Stored {
		t.Errorf("after it: %+v", left)
	}
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerRestart, 0))
	if left := w.d.Diff(m, find(t, w.d, m.Name)); len(left) != 0 {
		t.Errorf("after a restart: %+v", left)
	}
}

// A guest that reboots gets back an interface that was removed since its start. The
// listing shows that, and an update removes it again.
func TestRemovedInterfaceAfterARebootFromInside(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "removed")
	lan := containerbroker.NIC{Name: "lan", Bridge: w.bridge, MAC: "00:16:3e:00:78:05"}
	m.NICs = []containerbroker.NIC{{Name: "eth0", Bridge: w.bridge, MAC: "00:16:3e:00:78:04"}, lan}
	pid := w.start(t, m)
	m.NICs = m.NICs[:1]
	w.apply(t, m)
	w.says(t, m.Name, "ls /sys/class/net", "eth0\nlo")
	w.reboot(t, m.Name, pid)
	left := w.d.Diff(m, find(t, w.d, m.Name))
	if len(left) != 1 || left[0].Field != "nic lan" || left[0].Impact != containerbroker.ImpactLive || left[0].To != "" {
		t.Errorf("after the reboot: %+v", left)
	}
	w.apply(t, m)
	w.says(t, m.Name, "ls /sys/class/net", "eth0\nlo")
	if left := w.d.Diff(m, find(t, w.d, m.Name)); len(left) > 0 {
		t.Errorf("removed again: %+v", left)
	}
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerRestart, 0))
	w.inside(t, m.Name, "ip link add lan type bridge") // the guest's own
	m.CPUs = 2
	w.apply(t, m)
	w.says(t, m.Name, "ls /sys/class/net", "eth0\nlan\nlo")
}

// What interrupted operations left is removed. A root filesystem that no config
// names is set aside, and that of a copied config stays.
func TestLeftovers(t *testing.T) {
	w := newWorld(t)
	kept, gone := w.machine(t, "kept"), w.machine(t, "gone")
	must(t, w.d.Create(t.Context(), kept, nil))
	must(t, w.d.Create(t.Context(), gone, nil))
	host(t, "cp", "-a", w.path+"/kept", w.path+"/copied")
	must(t, os.Remove(w.path+"/copied/hostler.json"))
	must(t, os.RemoveAll(w.path+"/gone"))
	making := w.path + "/.hostler/making/token-half"
	must(t, os.Mkdir(making, 0o700))
	image := filepath.Join(w.path, ".hostler/pool/images", w.id)
	host(t, "btrfs", "-q", "subvolume", "snapshot", image, w.path+"/.hostler/pool/guests/token-half")
	places, more, err := w.d.MoveLeftovers(t.Context())
	if err != nil || more || len(places) != 1 || !strings.Contains(places[0], gone.Stamp.Token) {
		t.Errorf("%q, %v, %v", places, more, err)
	}
	for _, path := range []string{making, w.path + "/.hostler/pool/guests/token-half"} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there", path)
		}
	}
	if again, more, err := w.d.MoveLeftovers(t.Context()); len(again) > 0 || more || err != nil {
		t.Errorf("again: %q, %v, %v", again, more, err)
	}
	must(t, w.d.SetPower(t.Context(), kept.Name, containerbroker.PowerStart, 0))
	must(t, os.RemoveAll(w.path+"/copied"))
}

// Creations and deletions go on while leftovers are looked for: none of their files
// is taken for one, and none of their steps fails.
func TestLeftoversBesideCreationsAndDeletions(t *testing.T) {
	w := newWorld(t)
	const turns, rounds = 3, 8
	errs := make(chan error, turns)
	for turn := range turns {
		m := w.machine(t, "turn"+strconv.Itoa(turn))
		token := m.Stamp.Token
		go func() {
			var failed error
			for round := range rounds {
				m.Stamp.Token = token + "-" + strconv.Itoa(round)
				failed = errors.Join(failed, w.d.Create(t.Context(), m, nil), w.d.Delete(t.Context(), m.Name, m.Stamp))
			}
			errs <- failed
		}()
	}
	looks := 0
	for ended := 0; ended < turns; looks++ {
		if places, _, err := w.d.MoveLeftovers(t.Context()); len(places) > 0 || err != nil {
			t.Fatalf("look %d: %q, %v", looks, places, err)
		}
		select {
		case err := <-errs:
			must(t, err)
			ended++
		default:
		}
	}
	if left := w.left(); len(left) > 0 {
		t.Errorf("left after %d looks: %v", looks, left)
	}
}

// Deletions at the same time, of which each removes logs of others, do not disturb
// each other.
func TestManyDeletions(t *testing.T) {
	w := newWorld(t)
	w.d = lxc.New(lxc.Options{Path: w.path, Namespace: "hostler", IDs: w.ids, Bridge: w.bridge, Images: w.cache})
	var machines []containerbroker.Machine
	for n := range 24 {
		m := w.machine(t, "many"+strconv.Itoa(n))
		must(t, w.d.Create(t.Context(), m, nil))
		machines = append(machines, m)
	}
	errs := make(chan error)
	for _, m := range machines {
		go func() { errs <- w.d.Delete(t.Context(), m.Name, m.Stamp) }()
	}
	for range machines {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// reboot reboots an instance from inside and waits until it has another init than pid.
func (w *world) reboot(t *testing.T, name string, pid int64) {
	t.Helper()
	w.inside(t, name, "reboot -f")
	within(t, "it did not reboot", func() bool {
		now := find(t, w.d, name)
		return now.Status == containerbroker.StatusRunning && now.PID != pid && now.PID > 0
	})
}
