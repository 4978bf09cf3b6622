package networkprovisioner

import (
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
)

// A6, S23: the addresses of an undeclared interface stay with the machine until
// the machine's worker writes that it no longer uses the interface. Nothing else
// of the machine's status matters.
func TestAddressesStayWhileTheInterfaceIsInUse(t *testing.T) {
	made := &spec.InstanceInfo{}
	nic := spec.NICObject("lan", "eth0")
	for name, c := range map[string]struct {
		status  spec.MachineStatus
		matches bool
		dying   bool
		kept    bool
	}{
		"in use":                            {spec.MachineStatus{Instance: made, UsesNICs: []string{nic}}, false, false, true},
		"in use, and said to match":         {spec.MachineStatus{Instance: made, UsesNICs: []string{nic}}, true, false, true},
		"in use before the instance exists": {spec.MachineStatus{State: spec.MachinePending, UsesNICs: []string{nic}}, true, false, true},
		"let go, and another step failed":   {spec.MachineStatus{Instance: made, UsesNICs: []string{}}, false, false, false},
		"another interface in use":          {spec.MachineStatus{Instance: made, UsesNICs: []string{spec.NICObject("lan", "eth1")}}, false, false, false},
		"of an earlier version":             {spec.MachineStatus{Instance: made}, true, false, true},
		"of an earlier version, no guest":   {spec.MachineStatus{State: spec.MachinePending}, false, false, false},
		"removed, in use":                   {spec.MachineStatus{Instance: made, UsesNICs: []string{nic}}, false, true, true},
		"removed, let go":                   {spec.MachineStatus{Instance: made, UsesNICs: []string{}}, false, true, false},
	} {
		d, o := two(), Observed{}
		carryOut(t, &d, &o)
		web := guest("web", nil)
		web.Status, web.AttachmentsMatch, web.Dying = c.status, c.matches, c.dying
		d.Machines[0] = web
		carryOut(t, &d, &o)
		if entry, there := d.Networks[0].Status.Guests["web/eth0"]; !there || (entry.Released == nil) != c.kept {
			t.Errorf("%s: %+v", name, entry)
		}
	}
}

// A6, S23: a machine that took its interface while the addresses were released
// has them until it lets go, and no other machine gets them before.
func TestReleasedAddressesThatAreTakenMeanwhile(t *testing.T) {
	d, o := two(), Observed{}
	carryOut(t, &d, &o)
	d.Machines[0] = guest("web", nil)
	carryOut(t, &d, &o)
	if g := d.Networks[0].Status.Guests["web/eth0"]; g.Released == nil {
		t.Fatalf("%+v", g)
	}
	d.Machines[0].Status.UsesNICs = []string{spec.NICObject("lan", "eth0")}
	d.Machines = append(d.Machines, guest("app", on("lan", "10.20.0.10/24")))
	p := carryOut(t, &d, &o)
	if g := d.Networks[0].Status.Guests["web/eth0"]; g.Released != nil || had(p, "app/eth0") != "" {
		t.Errorf("web: %+v, app has %q", g, had(p, "app/eth0"))
	}
	d.Machines[0].Status.UsesNICs = []string{}
	carryOut(t, &d, &o) // releases it
	p = carryOut(t, &d, &o)
	equalText(t, "app", had(p, "app/eth0"), "10.20.0.10/24")
}

// An interface that is declared under another name has the declared address at once, and
// the instance keeps it at the former interface until it has the new one. The DHCP server
// gives it to either.
func TestAddressOfAnInterfaceWithAnotherName(t *testing.T) {
	for before, now := range map[string]string{"eth0": "lan0", "lan0": "eth0"} {
		nic := spec.NIC{Network: "lan", Address: "10.20.0.10/24"}
		d, o := two(), Observed{}
		web := &d.Machines[0]
		web.NICs, web.Status.Instance, web.Status.UsesNICs = map[string]spec.NIC{before: nic}, &spec.InstanceInfo{}, []string{spec.NICObject("lan", before)}
		carryOut(t, &d, &o)
		web.NICs, web.AttachmentsMatch = map[string]spec.NIC{now: nic}, false
		if why := Refuse(d, o, policy(), map[string]bool{"machine/web": true}); why != nil {
			t.Errorf("%s: %v", now, why)
		}
		for range 2 {
			p := carryOut(t, &d, &o)
			equalText(t, before+" before the restart", had(p, "web/"+before)+" "+had(p, "web/"+now), "10.20.0.10/24 10.20.0.10/24")
			equalText(t, "remarks", strings.Join(p.Networks[0].Notes, "; "), "")
			guests := p.Networks[0].Guests
			if hosts := p.Networks[0].DHCP.Hosts; len(hosts) != 2 || hosts[1].MAC != guests["web/"+now].MAC || strings.Join(hosts[1].Former, " ") != guests["web/"+before].MAC {
				t.Errorf("%s: the DHCP server has %+v", now, hosts)
			}
		}
		web.AttachmentsMatch, web.Status.UsesNICs = true, []string{spec.NICObject("lan", now)}
		p := carryOut(t, &d, &o)
		equalText(t, before+" after the restart", had(p, "web/"+before)+" "+had(p, "web/"+now), " 10.20.0.10/24")
	}
}

// The former interface keeps its IPv6 address, too, while the machine waits for its
// restart with the new one.
func TestInterfaceWithAnotherNameKeepsBothFamilies(t *testing.T) {
	nic := spec.NIC{Network: "lan", Address: "10.20.0.10/24"}
	d, o := two(), Observed{}
	d.Networks[0].Record.Network.Addresses = []string{"10.20.0.1/24", "fd00:20::1/64"}
	web := &d.Machines[0]
	web.NICs, web.Status.Instance, web.Status.UsesNICs = map[string]spec.NIC{"eth0": nic}, &spec.InstanceInfo{}, []string{spec.NICObject("lan", "eth0")}
	before := carryOut(t, &d, &o).Networks[0].Guests["web/eth0"].Addresses
	web.NICs, web.AttachmentsMatch = map[string]spec.NIC{"lan0": nic}, false
	for range 2 {
		guests := carryOut(t, &d, &o).Networks[0].Guests
		if len(before) != 2 || !slices.Equal(guests["web/eth0"].Addresses, before) || !slices.Equal(guests["web/lan0"].Addresses, before) {
			t.Errorf("eth0 has %v, had %v; lan0 has %v", guests["web/eth0"].Addresses, before, guests["web/lan0"].Addresses)
		}
	}
}

// Interfaces that would have to give their addresses one to the other and on to a third
// are refused: the machine would wait for ever.
func TestChainOfInterfacesIsRefused(t *testing.T) {
	nic := func(a string) spec.NIC { return spec.NIC{Network: "lan", Address: a} }
	d, o := two(), Observed{}
	web := &d.Machines[0]
	web.NICs, web.Status.Instance = map[string]spec.NIC{"eth0": nic("10.20.0.10/24"), "eth1": nic("10.20.0.11/24")}, &spec.InstanceInfo{}
	web.Status.UsesNICs = []string{spec.NICObject("lan", "eth0"), spec.NICObject("lan", "eth1")}
	for range 2 {
		carryOut(t, &d, &o)
	}
	web.AttachmentsMatch = false
	for _, c := range []struct {
		nics    map[string]spec.NIC
		refused bool
	}{
		{map[string]spec.NIC{"eth1": nic("10.20.0.10/24"), "lan0": nic("10.20.0.11/24")}, true},
		{map[string]spec.NIC{"eth1": nic("10.20.0.10/24")}, false},
		{map[string]spec.NIC{"lan0": nic("10.20.0.11/24"), "lan1": nic("10.20.0.10/24")}, false},
	} {
		web.NICs = c.nics
		if why := Refuse(d, o, policy(), map[string]bool{"machine/web": true}); (why != nil) != c.refused {
			t.Errorf("%v: %v", c.nics, why)
		}
	}
}
