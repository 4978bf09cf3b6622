package brokertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	kinds "hostler/internal/fault"
)

// nic returns an interface on the harness's bridge, with an address that no
// other machine of the suite has.
func (s *suite) nic(name string) containerbroker.NIC {
	n := s.next.Add(1)
	return containerbroker.NIC{
		Name: name, Bridge: s.Bridge, MAC: fmt.Sprintf("00:16:3e:00:%02x:%02x", n/256, n%256), MTU: 1400,
		Addresses: []string{fmt.Sprintf("198.18.%d.%d/16", n/250, n%250+2)},
	}
}

func static(n containerbroker.NIC) containerbroker.NIC {
	n.Static, n.Gateways, n.Nameservers = true, []string{"198.18.0.1"}, []string{"198.18.0.1"}
	return n
}

// changed updates the machine's instance and checks that only the named fields
// changed, with the given impact, and that no difference is left.
func (s *suite) changed(t *testing.T, m containerbroker.Machine, impact containerbroker.Impact, fields ...string) {
	t.Helper()
	pid := s.get(t, m.Name).PID
	changes := s.diff(t, m)
	var got []string
	for _, c := range changes {
		got = append(got, c.Field)
		if c.From == c.To {
			t.Errorf("a change that says nothing: %+v", c)
		}
		if c.Impact == containerbroker.ImpactRestart && c.Reason == "" {
			t.Errorf("a restart without a reason: %+v", c)
		}
	}
	if !slices.Equal(got, fields) || containerbroker.Worst(changes) != impact {
		t.Fatalf("changes: %+v\nwant %s of %q", changes, impact, fields)
	}
	for range 2 { // a repeated update is success
		must(t, s.Broker.Update(t.Context(), m, changes))
	}
	if left := s.diff(t, m); len(left) != 0 {
		t.Fatalf("it still differs: %+v", left)
	}
	if s.get(t, m.Name).PID != pid {
		t.Error("the update restarted the instance")
	}
}

func (s *suite) createAttached(t *testing.T) {
	m := s.machine(t)
	m.NICs = []containerbroker.NIC{static(s.nic("eth0")), s.nic("eth1")}
	volume := containerbroker.Disk{Name: "vol-" + strings.Repeat("d", 63), Source: s.Device(t), Device: "/dev/hostler-" + strings.Repeat("d", 63)}
	var folders []string
	if !s.Virtual {
		m.Disks = []containerbroker.Disk{
			{Name: "fs-logs", Source: s.Folder(t), Path: "/srv/logs", ReadOnly: true},
			{Name: "fs-www", Source: s.Folder(t), Path: "/srv/www"},
		}
		folders = []string{"disk fs-logs", "disk fs-www"}
	}
	m.Disks = append(m.Disks, volume)
	must(t, s.Broker.Create(t.Context(), m, nil))
	if changes := s.diff(t, m); len(changes) != 0 {
		t.Errorf("it differs right after it was made: %+v", changes)
	}
	for _, n := range m.NICs {
		if macs := s.get(t, m.Name).MACs; !slices.Contains(macs, n.MAC) {
			t.Errorf("it is told to have %v, without %s", macs, n.MAC)
		}
	}
	must(t, s.Broker.Create(t.Context(), m, nil))
	must(t, s.Broker.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	if changes := s.diff(t, m); len(changes) != 0 {
		t.Errorf("it differs when it runs: %+v", changes)
	}
	s.awaitDevices(t, m)
	m.NICs, m.Disks = nil, nil
	s.changed(t, m, containerbroker.ImpactRestart,
		append(folders, s.diskField(t, m), "network-config", "nic eth0", "nic eth1")...)
}

// awaitDevices waits until devices can be unplugged.
func (s *suite) awaitDevices(t *testing.T, m containerbroker.Machine) {
	t.Helper()
	if probe, ok := s.Broker.(containerbroker.ReadinessProbe); ok && s.Virtual {
		m.NICs, m.ExpectAddress = nil, false
		_, err := probe.WaitReady(t.Context(), m, nil)
		must(t, err)
	}
}

// diskField returns the name of the volume's field in a diff. It searches for
// the field, because the driver may shorten the long volume name.
func (s *suite) diskField(t *testing.T, m containerbroker.Machine) string {
	t.Helper()
	for _, change := range s.diff(t, m) {
		if strings.HasPrefix(change.Field, "disk vol-ddd") {
			return change.Field
		}
	}
	t.Fatalf("no disk in %+v", s.diff(t, m))
	return ""
}

func (s *suite) interfaces(t *testing.T) {
	m := s.up(t)
	first := s.nic("eth0")
	m.NICs = []containerbroker.NIC{first}
	changes := s.diff(t, m)
	if len(changes) != 1 || !strings.Contains(changes[0].To, first.MAC) || !strings.Contains(changes[0].To, s.Bridge) {
		t.Errorf("a person is told %+v", changes)
	}
	s.changed(t, m, containerbroker.ImpactLive, "nic eth0")
	// The driver replaces the interface, which ends the guest's connections.
	m.NICs[0].MTU = 1300
	s.changed(t, m, containerbroker.ImpactRestart, "nic eth0")
	m.NICs[0].MAC = s.nic("").MAC
	s.changed(t, m, containerbroker.ImpactLive, "nic eth0")
	// A guest keeps the address that it was leased until it starts again.
	m.NICs[0].Addresses = s.nic("").Addresses
	s.changed(t, m, containerbroker.ImpactRestart, "nic eth0")
	// The guest must configure a second interface.
	m.NICs = append(m.NICs, s.nic("eth1"))
	s.changed(t, m, containerbroker.ImpactRestart, "network-config", "nic eth1")
	m.NICs = m.NICs[:1]
	s.changed(t, m, containerbroker.ImpactLive, "network-config", "nic eth1")
	// An interface takes the place of another and gets its address.
	one, two := m.NICs[0], s.nic("eth1")
	two.Addresses = one.Addresses
	for _, m.NICs[0] = range []containerbroker.NIC{two, one} {
		s.changed(t, m, containerbroker.ImpactRestart, "network-config", "nic eth0", "nic eth1")
	}
	m.NICs[0] = static(m.NICs[0])
	s.changed(t, m, containerbroker.ImpactRestart, "network-config")
	m.NICs[0].Addresses = s.nic("").Addresses
	s.changed(t, m, containerbroker.ImpactRestart, "network-config", "nic eth0")
	m.NICs[0].Nameservers = nil
	s.changed(t, m, containerbroker.ImpactRestart, "network-config")
	// With KeepGuest, the guest keeps its network configuration.
	m.KeepGuest, m.NICs[0].Gateways = true, nil
	if changes := s.diff(t, m); len(changes) != 0 {
		t.Errorf("keeping what the guest was told: %+v", changes)
	}
	m.KeepGuest = false
	must(t, s.Broker.SetPower(t.Context(), m.Name, containerbroker.PowerRestart, waitLimit))
	s.awaitDevices(t, m)
	s.takenOver(t, m)
	m.NICs = nil
	s.changed(t, m, containerbroker.ImpactRestart, "network-config", "nic eth0")
}

// takenOver checks that an adoption removes nothing from the instance (P28),
// and that an interface, once it is declared, belongs to the machine again
// without being replugged.
func (s *suite) takenOver(t *testing.T, m containerbroker.Machine) {
	t.Helper()
	stamper, ok := s.Broker.(containerbroker.Stamper)
	if !ok {
		return
	}
	other := m
	other.Stamp.UID, other.Stamp.Token, other.KeepGuest = "conform-adopter", "conform-adopter", true
	for _, released := range []bool{false, true} {
		seen := &m.Stamp
		if released {
			must(t, stamper.Unstamp(t.Context(), m.Name, m.Stamp))
			seen = nil
		}
		must(t, stamper.Stamp(t.Context(), m.Name, seen, other.Stamp))
		other.NICs = nil
		if changes := s.diff(t, other); len(changes) != 0 {
			t.Errorf("taken over (released %v) it would lose %+v", released, changes)
		}
		other.NICs = m.NICs
		s.changed(t, other, containerbroker.ImpactLive, "nic eth0")
		must(t, stamper.Stamp(t.Context(), m.Name, &other.Stamp, m.Stamp))
		m.KeepGuest = true
		s.changed(t, m, containerbroker.ImpactLive, "nic eth0")
	}
	m.KeepGuest = false // the stamp may have lost the guest's network configuration, so write it again
	must(t, s.Broker.Update(t.Context(), m, s.diff(t, m)))
}

// volumes tests volumes on a hypervisor that cannot share folders.
func (s *suite) volumes(t *testing.T) {
	m := s.up(t)
	m.Disks = []containerbroker.Disk{{Name: "vol-data", Source: s.Device(t), Device: "/dev/hostler-data"}}
	s.changed(t, m, containerbroker.ImpactLive, "disk vol-data")
	m.Disks = append(m.Disks, containerbroker.Disk{Name: "vol-more", Source: s.Device(t), Device: "/dev/hostler-more"})
	s.changed(t, m, containerbroker.ImpactLive, "disk vol-more")
	m.Disks[0].Source, m.Disks[0].ReadOnly = s.Device(t), true
	s.changed(t, m, containerbroker.ImpactLive, "disk vol-data")
	must(t, s.Broker.SetPower(t.Context(), m.Name, containerbroker.PowerRestart, waitLimit))
	if changes := s.diff(t, m); len(changes) != 0 {
		t.Errorf("after a restart it differs: %+v", changes)
	}
	s.awaitDevices(t, m)
	m.Disks = nil
	s.changed(t, m, containerbroker.ImpactLive, "disk vol-data", "disk vol-more")
}

func (s *suite) disks(t *testing.T) {
	if s.Virtual {
		s.volumes(t)
		return
	}
	m := s.running(t)
	m.Disks = []containerbroker.Disk{{Name: "fs-www", Source: s.Folder(t), Path: "/srv/www"}}
	s.changed(t, m, containerbroker.ImpactLive, "disk fs-www")
	m.Disks = append(m.Disks, containerbroker.Disk{Name: "vol-data", Source: s.Device(t), Device: "/dev/hostler-data"})
	s.changed(t, m, containerbroker.ImpactLive, "disk vol-data")
	m.Disks[0].Path, m.Disks[0].ReadOnly = "/srv/elsewhere", true
	m.Disks[1].Source = s.Device(t)
	s.changed(t, m, containerbroker.ImpactLive, "disk fs-www", "disk vol-data")
	m.Disks[1].ReadOnly = true
	s.changed(t, m, containerbroker.ImpactLive, "disk vol-data")
	must(t, s.Broker.SetPower(t.Context(), m.Name, containerbroker.PowerRestart, waitLimit))
	if changes := s.diff(t, m); len(changes) != 0 {
		t.Errorf("after a restart it differs: %+v", changes)
	}
	m.Disks = m.Disks[1:]
	s.changed(t, m, containerbroker.ImpactLive, "disk fs-www")
	m.Disks = nil
	s.changed(t, m, containerbroker.ImpactLive, "disk vol-data")
}

// runningDiffers detaches a disk from a running instance only. It checks that
// adding the disk again is a live change, and that an instance without room for
// the disk needs a restart.
func (s *suite) runningDiffers(t *testing.T) {
	m := s.machine(t)
	m.Disks = []containerbroker.Disk{{Name: "vol-data", Source: s.Device(t), Device: "/dev/hostler-data"}}
	must(t, s.Broker.Create(t.Context(), m, nil))
	if i := s.get(t, m.Name); i.Running != nil || i.Stored.Disks["vol-data"] == "" {
		t.Errorf("stopped: stored %+v, running %+v", i.Stored, i.Running)
	}
	must(t, s.Broker.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	s.awaitDevices(t, m)
	stored := s.get(t, m.Name).Stored.Disks["vol-data"]
	s.Detach(t, m.Name, "vol-data")
	i := s.get(t, m.Name)
	for deadline := time.Now().Add(waitLimit); i.Running.Disks["vol-data"] != "" && time.Now().Before(deadline); i = s.get(t, m.Name) {
		time.Sleep(100 * time.Millisecond) // the guest must release the disk first
	}
	if i.Stored.Disks["vol-data"] != stored || i.Running.Disks["vol-data"] != "" {
		t.Fatalf("detached: stored %+v, running %+v", i.Stored.Disks, i.Running.Disks)
	}
	i.Room = &containerbroker.Room{CPUs: m.CPUs}
	if changes := s.Broker.(containerbroker.Differ).Diff(m, i); containerbroker.Worst(changes) != containerbroker.ImpactRestart {
		t.Errorf("without room for it: %+v", changes)
	}
	if changes := s.diff(t, m); len(changes) != 1 || changes[0].From != stored+", not while it runs" || changes[0].To != stored {
		t.Errorf("detached: %+v", changes)
	}
	s.changed(t, m, containerbroker.ImpactLive, "disk vol-data")
	if has := s.get(t, m.Name).Running.Disks["vol-data"]; has != stored {
		t.Errorf("it runs with %q, stored is %q", has, stored)
	}
}

func (s *suite) attachRefuses(t *testing.T) {
	valid := containerbroker.Disk{Name: "fs-www", Path: "/srv/www"}
	if s.Virtual {
		valid = containerbroker.Disk{Name: "vol-www", Source: s.Device(t), Device: "/dev/hostler-www"}
	} else {
		valid.Source = s.Folder(t)
	}
	for what, change := range map[string]func(*containerbroker.Machine){
		"no bridge":             func(m *containerbroker.Machine) { m.NICs[0].Bridge = "" },
		"a bridge's name":       func(m *containerbroker.Machine) { m.NICs[0].Bridge = "../eth0" },
		"an interface's name":   func(m *containerbroker.Machine) { m.NICs[0].Name = "eth*" },
		"a multicast MAC":       func(m *containerbroker.Machine) { m.NICs[0].MAC = "01:00:5e:00:00:01" },
		"an address":            func(m *containerbroker.Machine) { m.NICs[0].Addresses = []string{"198.18.0.2"} },
		"static without any":    func(m *containerbroker.Machine) { m.NICs[0].Static, m.NICs[0].Addresses = true, nil },
		"a gateway":             func(m *containerbroker.Machine) { m.NICs[0].Gateways = []string{"default"} },
		"an MTU":                func(m *containerbroker.Machine) { m.NICs[0].MTU = 7 },
		"an interface twice":    func(m *containerbroker.Machine) { m.NICs = append(m.NICs, m.NICs[0]) },
		"a disk twice":          func(m *containerbroker.Machine) { m.Disks = append(m.Disks, m.Disks[0]) },
		"no source":             func(m *containerbroker.Machine) { m.Disks[0].Source = "" },
		"a source upwards":      func(m *containerbroker.Machine) { m.Disks[0].Source += "/../other" },
		"the guest's root":      func(m *containerbroker.Machine) { m.Disks[0].Path = "/" },
		"neither path nor name": func(m *containerbroker.Machine) { m.Disks[0].Path, m.Disks[0].Device = "", "" },
		"both path and name": func(m *containerbroker.Machine) {
			m.Disks[0].Path, m.Disks[0].Device = "/srv/www", "/dev/hostler-data"
		},
		"a name outside /dev": func(m *containerbroker.Machine) {
			m.Disks[0].Path, m.Disks[0].Device = "", "/etc/passwd"
		},
	} {
		m := s.machine(t)
		m.NICs = []containerbroker.NIC{s.nic("eth0")}
		m.Disks = []containerbroker.Disk{valid}
		change(&m)
		if err := s.Broker.Create(t.Context(), m, nil); !kinds.Is(err, kinds.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
		if s.find(t, m.Name) != nil {
			t.Errorf("%s: it was made", what)
		}
	}
}
