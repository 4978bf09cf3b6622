package provisioner

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

func object(kind, name string, record, status any) state.Object {
	return state.Object{ID: state.ID{Kind: kind, Name: name}, UID: "uid-" + name, Life: state.Alive, Generation: 1, Spec: spec.Encode(record), Status: spec.Encode(status)}
}

// aSite returns a machine with a NIC and two disks, and their network and
// storage.
func aSite() []state.Object {
	return []state.Object{
		object(spec.KindMachine, "web", spec.MachineRecord{Machine: spec.Machine{
			Type: spec.LXD, Image: "debian/12", Networks: map[string]spec.NIC{"eth0": {Network: "lan"}},
			Storage: []spec.Attachment{{Volume: "data"}, {Filesystem: "www", Path: "/srv/www", ReadOnly: true}},
		}}, spec.MachineStatus{}),
		object(spec.KindNetwork, "lan", spec.NetworkRecord{Network: spec.Network{Bridge: "br-lan", MTU: 1400, DHCP: true}}, spec.NetworkStatus{
			State: "ready", Gateways: []string{"10.20.0.1"},
			Guests: map[string]spec.GuestAddress{"web/eth0": {MAC: "02:00:00:00:00:01", Addresses: []string{"10.20.0.10/24"}}},
		}),
		object(spec.KindVolume, "data", spec.VolumeRecord{}, spec.StorageStatus{
			Size:        1 << 30,
			Attachments: map[string]spec.AttachmentStatus{"web": {State: spec.StorageAttached, Source: "/dev/loop7"}},
		}),
		object(spec.KindFilesystem, "www", spec.FilesystemRecord{}, spec.StorageStatus{
			Attachments: map[string]spec.AttachmentStatus{"web": {State: spec.StorageAttached, Source: "/var/lib/hostler/mounts/www"}},
		}),
	}
}

// A consent to a restart is kept while the network is to give the machine another
// address.
func TestAMachineWaitsForItsDeclaredAddress(t *testing.T) {
	for address, unsettled := range map[string]bool{"": false, "10.20.0.10/24": false, "10.20.0.11/24": true} {
		objects := aSite()
		var record spec.MachineRecord
		if err := objects[0].Decode(&record, nil); err != nil {
			t.Fatal(err)
		}
		record.Machine.Networks = map[string]spec.NIC{"eth0": {Network: "lan", Address: address}}
		objects[0].Spec = spec.Encode(record)
		for i := range objects {
			objects[i].Generation = 0
		}
		desired, err := Decode(objects, spec.LXD, Config{Namespace: ns})
		if err != nil {
			t.Fatal(err)
		}
		if desired[0].Unsettled != unsettled {
			t.Errorf("with the declared address %q it is %v", address, desired[0].Unsettled)
		}
	}
}

// P35: the NICs and disks of a machine reach the broker.
func TestBrokerGetsTheMachinesNICsAndDisks(t *testing.T) {
	desired, err := Decode(aSite(), spec.LXD, Config{Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	m := desired[0].Machine
	wantNICs := []containerbroker.NIC{{
		Name: "eth0", Bridge: "br-lan", MAC: "02:00:00:00:00:01", MTU: 1400, Addresses: []string{"10.20.0.10/24"}, Gateways: []string{"10.20.0.1"},
	}}
	wantDisks := []containerbroker.Disk{
		{Name: "fs-www", Source: "/var/lib/hostler/mounts/www", Path: "/srv/www", ReadOnly: true},
		{Name: "vol-data", Source: "/dev/loop7", Device: "/dev/hostler-data", Size: 1 << 30},
	}
	if d := cmp.Diff(wantNICs, m.NICs) + cmp.Diff(wantDisks, m.Disks); d != "" || len(desired[0].Waiting) != 0 {
		t.Errorf("waiting for %v, differs:\n%s", desired[0].Waiting, d)
	}
	if m.Autostart {
		t.Error("a machine with storage is left to the hypervisor's autostart")
	}
}

// A machine waits until its filesystem has the owners of its kind.
func TestMachinesWaitForTheOwnersOfTheirFilesystems(t *testing.T) {
	for _, privileged := range []bool{false, true} {
		for _, offered := range []bool{false, true} {
			objects := aSite()
			var record spec.MachineRecord
			var status spec.StorageStatus
			if err := errors.Join(objects[0].Decode(&record, nil), objects[3].Decode(nil, &status)); err != nil {
				t.Fatal(err)
			}
			record.Machine.Privileged = privileged
			offer := status.Attachments["web"]
			offer.Privileged = offered
			status.Attachments["web"] = offer
			objects[0].Spec, objects[3].Status = spec.Encode(record), spec.Encode(status)
			desired, err := Decode(objects, spec.LXD, Config{Namespace: ns})
			if err != nil {
				t.Fatal(err)
			}
			if waits := slices.Equal(desired[0].Waiting, []string{"filesystem/www"}); waits != (privileged != offered) {
				t.Errorf("privileged: %v, its filesystem is for such a machine: %v, it waits for %v", privileged, offered, desired[0].Waiting)
			}
		}
	}
}

// A running machine whose volume is declared with another mode keeps its device as it is,
// also before the storage worker has withdrawn the offer of the former mode.
func TestMachinesWaitForTheModeOfTheirVolumes(t *testing.T) {
	for _, declared := range []bool{false, true} {
		for _, offered := range []bool{false, true} {
			objects := aSite()
			var record spec.MachineRecord
			var status spec.StorageStatus
			if err := errors.Join(objects[0].Decode(&record, nil), objects[2].Decode(nil, &status)); err != nil {
				t.Fatal(err)
			}
			record.Machine.Storage[0].ReadOnly = declared
			offer := status.Attachments["web"]
			offer.ReadOnly = offered
			status.Attachments["web"] = offer
			objects[0].Spec, objects[2].Status = spec.Encode(record), spec.Encode(status)
			desired, err := Decode(objects, spec.LXD, Config{Namespace: ns})
			if err != nil {
				t.Fatal(err)
			}
			if waits := slices.Equal(desired[0].Waiting, []string{"volume/data"}); waits != (declared != offered) {
				t.Errorf("read-only: %v, its volume is offered with %v, it waits for %v", declared, offered, desired[0].Waiting)
			}
		}
	}
}

// B4 P34 A13: a machine waits for each of its networks and disks. Meanwhile it
// is neither created, started nor changed, and a running instance keeps
// running.
func TestMachinesWaitForTheirNetworksAndDisks(t *testing.T) {
	for i, missing := range []string{"network/lan", "volume/data", "filesystem/www"} {
		for _, how := range []string{"absent", "dying", "without status"} {
			objects := aSite()
			switch o := &objects[i+1]; how {
			case "absent":
				objects = append(objects[:i+1], objects[i+2:]...)
			case "dying":
				o.Life = state.Dying
			default:
				o.Status = nil
			}
			desired, err := Decode(objects, spec.LXD, Config{Namespace: ns})
			if err != nil {
				t.Fatal(err)
			}
			d := desired[0]
			if cmp.Diff([]string{missing}, d.Waiting) != "" {
				t.Errorf("%s %s: waiting for %v", missing, how, d.Waiting)
			}
			policy := Policy{Namespace: ns, Now: t0, Harvest: HarvestAll, Diff: differs(containerbroker.Change{Field: "disks", Impact: containerbroker.ImpactLive})}
			if steps := Plan(desired, Observed{Complete: true}, policy); len(steps) != 0 {
				t.Errorf("%s %s: planned %v", missing, how, summary(steps, t0))
			}
			if s := assess(&d, nil, nil, t0); s.Message != "waiting for "+missing {
				t.Errorf("message %q", s.Message)
			}
			provisioned(&desired[0])
			for _, change := range []func(*containerbroker.Instance){func(*containerbroker.Instance) {}, stopped} {
				inst := instance("web", change)
				if steps := Plan(desired, Observed{Complete: true, Instances: []containerbroker.Instance{inst}}, policy); len(steps) != 0 {
					t.Errorf("%s %s, %s: planned %v", missing, how, inst.Status, summary(steps, t0))
				}
			}
		}
	}
}

// On a network over the host's NIC, a static guest with IPv4 addresses alone
// heeds the routers of the host's network.
func TestStaticGuestsAcceptTheHostsRouters(t *testing.T) {
	for _, c := range []struct {
		interfaces, addresses []string
		want                  bool
	}{
		{[]string{"en0"}, []string{"10.20.0.10/24"}, true},
		{[]string{"en0"}, []string{"10.20.0.10/24", "fd00::10/64"}, false},
		{nil, []string{"10.20.0.10/24"}, false},
	} {
		objects := aSite()
		objects[0].Spec = spec.Encode(spec.MachineRecord{Machine: spec.Machine{
			Type: spec.LXD, Image: "debian/12", Networks: map[string]spec.NIC{"eth0": {Network: "lan", Router: true}},
		}})
		objects[1].Spec = spec.Encode(spec.NetworkRecord{Network: spec.Network{Bridge: "br-lan", Interfaces: c.interfaces}})
		objects[1].Status = spec.Encode(spec.NetworkStatus{
			State: "ready", Guests: map[string]spec.GuestAddress{"web/eth0": {MAC: "02:00:00:00:00:01", Addresses: c.addresses}},
		})
		desired, err := Decode(objects, spec.LXD, Config{Namespace: ns})
		if err != nil {
			t.Fatal(err)
		}
		if nic := desired[0].Machine.NICs[0]; !nic.Static || nic.AcceptRA != c.want || !nic.Router {
			t.Errorf("%v %v: %+v", c.interfaces, c.addresses, nic)
		}
	}
}

// A pass that finds that the host has booted leaves the kept records as they are stored.
func TestBootedMachinesLeaveTheKeptRecords(t *testing.T) {
	objects := aSite()[:1]
	objects[0].Revision = 7
	objects[0].Status = spec.Encode(spec.MachineStatus{
		Boot: "before", Instance: &spec.InstanceInfo{Token: "t"}, Conditions: []spec.Condition{{Type: ConditionReady, Status: true, Reason: "Usable"}},
	})
	k, c := newDecoder(), Config{Namespace: ns}
	c.Host.Boot = "now"
	desired, err := k.desired(objects, spec.LXD, c)
	if err != nil {
		t.Fatal(err)
	}
	inst := instance("web")
	inst.Stamp.UID, inst.Stamp.Token = "uid-web", "t"
	markBooted(desired, []containerbroker.Instance{inst}, c, nil, t0)
	again, err := k.desired(objects, spec.LXD, c)
	if err != nil || !desired[0].Booted || !spec.ConditionOf(again[0].Status.Conditions, ConditionReady).Status {
		t.Errorf("booted %v, kept %+v, %v", desired[0].Booted, again, err)
	}
}
