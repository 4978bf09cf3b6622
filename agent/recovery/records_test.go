package recovery

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/storageprovisioner"
	"hostler/containerbroker"
	"hostler/storage"
)

func stamped(name, uid, namespace string) containerbroker.Instance {
	record := provisioner.StampedRecord{Declaration: "site", Machine: spec.Machine{Type: spec.LXD, Image: "debian/12", CPUs: 2}}
	return containerbroker.Instance{
		Name: name, Status: containerbroker.StatusRunning,
		Stamp: &containerbroker.Stamp{Namespace: namespace, UID: uid, Token: "token-" + name, Record: string(spec.Encode(record))},
	}
}

func machineObject(name, uid string, instance *spec.InstanceInfo) state.Object {
	return state.Object{
		ID: state.ID{Kind: spec.KindMachine, Name: name}, UID: uid, Revision: 5,
		Spec:   spec.Encode(spec.MachineRecord{Header: spec.Header{Declaration: "new"}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/13"}}),
		Status: spec.Encode(spec.MachineStatus{Instance: instance}),
	}
}

// The machines of a lost store get their records back, with uid, token and
// declaration; foreign instances get none.
func TestRecordsComeBackFromStamps(t *testing.T) {
	foreign := containerbroker.Instance{Name: "foreign"}
	broken := stamped("broken", "uid-broken", "hostler")
	broken.Stamp.Record = "{"
	writes, found, err := recordsOf(spec.LXD, []containerbroker.Instance{
		stamped("web", "uid-web", "hostler"), stamped("db", "uid-db", "hostler"),
		stamped("other", "uid-other", "another"), foreign, broken,
	}, nil, "hostler")
	if err != nil || found != 2 || len(writes) != 3 {
		t.Fatalf("%d found, %d writes, %v", found, len(writes), err)
	}
	var status spec.MachineStatus
	if err := json.Unmarshal(writes[0].Status, &status); err != nil {
		t.Fatal(err)
	}
	if writes[0].UID != "uid-web" || writes[0].Revision != 0 || status.Instance.Token != "token-web" || status.Instance.Image != "debian/12" {
		t.Errorf("web: %+v, %+v", writes[0], status.Instance)
	}
	var declaration spec.DeclarationRecord
	if err := json.Unmarshal(writes[2].Spec, &declaration); err != nil {
		t.Fatal(err)
	}
	if declaration.Source != spec.SourceStamps || len(declaration.Document.Machines) != 2 {
		t.Errorf("declaration %+v", declaration)
	}
}

// A user's copy bears the stamp of its original; the oldest instance gets the
// record.
func TestCopiesGetNoRecord(t *testing.T) {
	web, early, late := stamped("web", "uid-web", "hostler"), stamped("aweb", "uid-web", "hostler"), stamped("zweb", "uid-web", "hostler")
	web.Created = time.Unix(1000, 0)
	early.Created, late.Created = time.Unix(2000, 0), time.Unix(3000, 0)
	writes, found, err := recordsOf(spec.LXD, []containerbroker.Instance{early, web, late}, nil, "hostler")
	if err != nil || found != 1 || len(writes) != 2 || writes[0].Name != "web" {
		t.Errorf("%d found, %v: %+v", found, err, writes)
	}
}

// An instance that a user moved to another hypervisor gets no record: as a
// machine of its stamped type it would be made again there, empty.
func TestMovedInstancesGetNoRecord(t *testing.T) {
	web := stamped("web", "uid-web", "hostler")
	for in, want := range map[spec.ContainerType]int{spec.LXD: 1, spec.Incus: 0} {
		writes, found, err := recordsOf(in, []containerbroker.Instance{web}, nil, "hostler")
		if err != nil || found != want || len(writes) != 2*want {
			t.Errorf("in %s: %d found, %d writes, %v", in, found, len(writes), err)
		}
	}
}

// A machine that was declared again before its instance was found keeps its
// declaration and gets the instance's uid. A machine that has another instance
// is left alone.
func TestRecordsDeclaredAnew(t *testing.T) {
	instances := []containerbroker.Instance{stamped("web", "uid-web", "hostler")}
	writes, found, err := recordsOf(spec.LXD, instances, []state.Object{machineObject("web", "uid-new", nil)}, "hostler")
	if err != nil || found != 1 || len(writes) != 2 || !writes[0].Delete || writes[0].Revision != 5 {
		t.Fatalf("%d found, %+v, %v", found, writes, err)
	}
	var record spec.MachineRecord
	if err := json.Unmarshal(writes[1].Spec, &record); err != nil || record.Machine.Image != "debian/13" || writes[1].UID != "uid-web" {
		t.Errorf("record %+v uid %s %v", record, writes[1].UID, err)
	}
	elsewhere := machineObject("web", "uid-new", nil)
	elsewhere.Spec = spec.Encode(spec.MachineRecord{Header: spec.Header{Declaration: "new"}, Machine: spec.Machine{Type: spec.KVM, Image: "debian/13"}})
	for name, objects := range map[string][]state.Object{
		"another type's":    {elsewhere},
		"known":             {machineObject("web", "uid-web", nil)},
		"has another":       {machineObject("web", "uid-new", &spec.InstanceInfo{Name: "web"})},
		"known by its name": {machineObject("web", "uid-web", &spec.InstanceInfo{Name: "web"})},
	} {
		if writes, found, err := recordsOf(spec.LXD, instances, objects, "hostler"); err != nil || found != 0 || len(writes) != 0 {
			t.Errorf("%s: %d found, %+v, %v", name, found, writes, err)
		}
	}
}

// A restored machine uses the storage and the NICs in its stamp, also if it was
// declared without them meanwhile.
func TestRestoredMachinesUseTheirStorage(t *testing.T) {
	with := stamped("web", "uid-web", "hostler")
	record := provisioner.StampedRecord{Machine: spec.Machine{Type: spec.LXD, Networks: map[string]spec.NIC{"eth0": {Network: "lan"}}, Storage: []spec.Attachment{{Volume: "data"}, {Filesystem: "www", Path: "/srv"}}}}
	with.Stamp.Record = string(spec.Encode(record))
	for _, objects := range [][]state.Object{nil, {machineObject("web", "uid-new", nil)}} {
		writes, _, err := recordsOf(spec.LXD, []containerbroker.Instance{with, stamped("db", "uid-db", "hostler")}, objects, "hostler")
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range writes {
			var s spec.MachineStatus
			if w.Kind != spec.KindMachine || w.Delete {
				continue
			}
			if err := json.Unmarshal(w.Status, &s); err != nil {
				t.Fatal(err)
			}
			if !s.InUse("volume/data") || s.InUse("volume/other") != (w.Name == "db") || len(s.Uses) != map[string]int{"web": 2}[w.Name] {
				t.Errorf("%s: %+v", w.Name, s)
			}
			if nic := spec.NICObject("lan", "eth0"); !s.InUse(nic) || slices.Contains(s.UsesNICs, nic) != (w.Name == "web") {
				t.Errorf("%s: %+v", w.Name, s)
			}
		}
	}
}

// Restored records are complete. An adopted machine, and a machine whose
// user-data or keys did not fit into its stamp, keep their guest's data; a machine that
// was stopped by hand stays stopped.
func TestRecordsComeBackWhole(t *testing.T) {
	config := provisioner.Config{Namespace: "hostler"}
	large := "#cloud-config\n# " + strings.Repeat("x", 60<<10)
	keys := slices.Repeat([]string{"ssh-ed25519 " + strings.Repeat("A", 700)}, 70)
	for what, record := range map[string]spec.MachineRecord{
		"taken over":                {Adopted: true, Machine: spec.Machine{CloudInit: spec.CloudInit{UserData: "#cloud-config\n"}}},
		"stopped by hand":           {PowerOverride: new(false)},
		"started by hand":           {PowerOverride: new(true), Machine: spec.Machine{Running: new(false)}},
		"with much user-data":       {Machine: spec.Machine{CloudInit: spec.CloudInit{UserData: large}}},
		"with many keys":            {Machine: spec.Machine{SSHKeys: keys}},
		"taken over, and with much": {Adopted: true, Machine: spec.Machine{CloudInit: spec.CloudInit{UserData: large}}},
		"as any other":              {},
	} {
		record.Declaration, record.Machine.Type, record.Machine.Image = "site", spec.LXD, "debian/12"
		m := config.Resolve(provisioner.Desired{Name: "web", UID: "uid-web", Record: record})
		for range 2 { // the restored records are stamped and lost again
			writes, found, err := recordsOf(spec.LXD, []containerbroker.Instance{{Name: "web", Stamp: &m.Stamp}}, nil, "hostler")
			if err != nil || found != 1 {
				t.Fatalf("%s: %d found, %v", what, found, err)
			}
			var again spec.MachineRecord
			if err := json.Unmarshal(writes[0].Spec, &again); err != nil {
				t.Fatal(err)
			}
			want := record
			if record.Machine.CloudInit.UserData == large || record.Machine.SSHKeys != nil {
				want.GuestLost, want.Machine.CloudInit.UserData, want.Machine.SSHKeys = true, "", nil
			}
			if diff := cmp.Diff(want, again); diff != "" {
				t.Errorf("%s: %s", what, diff)
			}
			now := config.Resolve(provisioner.Desired{Name: "web", UID: "uid-web", Record: again})
			if now.Stamp != m.Stamp || now.KeepGuest != (want.Adopted || want.GuestLost) {
				t.Errorf("%s: it is changed: keep %v, stamp\n%s\n%s", what, now.KeepGuest, now.Stamp.Record, m.Stamp.Record)
			}
			m = now
		}
		// A machine that was declared again keeps its new declaration and stays
		// adopted.
		anew := machineObject("web", "uid-new", nil)
		writes, _, err := recordsOf(spec.LXD, []containerbroker.Instance{{Name: "web", Stamp: &m.Stamp}}, []state.Object{anew}, "hostler")
		var again spec.MachineRecord
		if err != nil || json.Unmarshal(writes[1].Spec, &again) != nil || again.Adopted != record.Adopted || again.PowerOverride != nil || again.GuestLost {
			t.Errorf("%s, declared anew: %+v, %v", what, again, err)
		}
	}
}

// The volumes and filesystems of a lost store get their records back as
// declared. Released storage and storage of other agents get none.
func TestStorageComesBackFromStamps(t *testing.T) {
	ref := func(id, uid, namespace string) storage.Ref {
		return storage.Ref{ID: id, Stamp: storage.Stamp{Namespace: namespace, UID: uid}}
	}
	data := string(spec.Encode(spec.VolumeRecord{Header: spec.Header{Declaration: "site", Force: true}, Volume: spec.Volume{Provider: "loop", Size: spec.GiB, Retain: true}}))
	www := string(spec.Encode(spec.FilesystemRecord{Header: spec.Header{Declaration: "site"}, Filesystem: spec.Filesystem{Volume: "data", MountOptions: []string{"noatime"}}}))
	there := storageprovisioner.Observed{
		Volumes: map[string][]storage.Volume{"loop": {
			{Ref: ref("data", "uid-data", "hostler"), Record: data},
			{Ref: ref("kept", "uid-kept", "hostler")},
			{Ref: ref("theirs", "uid-theirs", "another"), Record: data},
			{Ref: ref("broken", "uid-broken", "hostler"), Record: "{"},
		}},
		Filesystems: map[string][]storage.Filesystem{storageprovisioner.Managed: {{Ref: ref("www", "uid-data", "hostler"), Record: www}}},
	}
	writes, found := recordsOfStorage(there, nil, "hostler")
	if found != 2 || len(writes) != 3 {
		t.Fatalf("%d found, writes %+v", found, writes)
	}
	var volume spec.VolumeRecord
	if err := json.Unmarshal(writes[0].Spec, &volume); err != nil || writes[0].UID != "uid-data" || !volume.Volume.Retain || volume.Force {
		t.Errorf("the volume: %+v %v", writes[0], err)
	}
	if writes[1].UID != "" || writes[1].Name != "www" {
		t.Errorf("the filesystem: %+v", writes[1])
	}
	var declaration spec.DeclarationRecord
	if err := json.Unmarshal(writes[2].Spec, &declaration); err != nil || declaration.Source != spec.SourceStamps ||
		len(declaration.Document.Volumes) != 1 || len(declaration.Document.Filesystems) != 1 {
		t.Errorf("the declaration: %+v %v", declaration, err)
	}

	// Machines that are found later join the same document.
	objects := []state.Object{
		{ID: writes[0].ID, UID: writes[0].UID, Spec: writes[0].Spec},
		{ID: writes[1].ID, UID: "uid-www", Spec: writes[1].Spec},
		{ID: writes[2].ID, UID: "uid-site", Revision: 7, Spec: writes[2].Spec},
	}
	writes, _, err := recordsOf(spec.LXD, []containerbroker.Instance{stamped("web", "uid-web", "hostler")}, objects, "hostler")
	if err != nil || len(writes) != 2 || writes[1].Revision != 7 {
		t.Fatalf("%+v %v", writes, err)
	}
	if err := json.Unmarshal(writes[1].Spec, &declaration); err != nil || len(declaration.Document.Machines) != 1 || len(declaration.Document.Volumes) != 1 {
		t.Errorf("the declaration: %+v %v", declaration, err)
	}
	if writes, found := recordsOfStorage(there, objects, "hostler"); found != 0 || len(writes) != 0 {
		t.Errorf("found again: %+v", writes)
	}
}
