package agent

import (
	"encoding/json"
	"testing"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
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
		Spec:   spec.Encode(spec.MachineRecord{Declaration: "new", Machine: spec.Machine{Type: spec.LXD, Image: "debian/13"}}),
		Status: spec.Encode(spec.MachineStatus{Instance: instance}),
	}
}

// A lost store's machines get their records back, with uid, token and
// declaration; nothing foreign does.
func TestRecordsComeBackFromStamps(t *testing.T) {
	foreign := containerbroker.Instance{Name: "foreign"}
	broken := stamped("broken", "uid-broken", "hostler")
	broken.Stamp.Record = "{"
	writes, found, err := recordsOf([]containerbroker.Instance{
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

// A copy that a person made bears the stamp of what it is a copy of; the
// record is the oldest one's.
func TestCopiesGetNoRecord(t *testing.T) {
	web, early, late := stamped("web", "uid-web", "hostler"), stamped("aweb", "uid-web", "hostler"), stamped("zweb", "uid-web", "hostler")
	web.Created = time.Unix(1000, 0)
	early.Created, late.Created = time.Unix(2000, 0), time.Unix(3000, 0)
	writes, found, err := recordsOf([]containerbroker.Instance{early, web, late}, nil, "hostler")
	if err != nil || found != 1 || len(writes) != 2 || writes[0].Name != "web" {
		t.Errorf("%d found, %v: %+v", found, err, writes)
	}
}

// What was declared anew before the instance was found keeps its declaration
// and takes over the instance's identity; a machine that has an instance of
// its own is left alone.
func TestRecordsDeclaredAnew(t *testing.T) {
	instances := []containerbroker.Instance{stamped("web", "uid-web", "hostler")}
	writes, found, err := recordsOf(instances, []state.Object{machineObject("web", "uid-new", nil)}, "hostler")
	if err != nil || found != 1 || len(writes) != 2 || !writes[0].Delete || writes[0].Revision != 5 {
		t.Fatalf("%d found, %+v, %v", found, writes, err)
	}
	var record spec.MachineRecord
	if err := json.Unmarshal(writes[1].Spec, &record); err != nil || record.Machine.Image != "debian/13" || writes[1].UID != "uid-web" {
		t.Errorf("record %+v uid %s %v", record, writes[1].UID, err)
	}
	for name, objects := range map[string][]state.Object{
		"known":             {machineObject("web", "uid-web", nil)},
		"has another":       {machineObject("web", "uid-new", &spec.InstanceInfo{Name: "web"})},
		"known by its name": {machineObject("web", "uid-web", &spec.InstanceInfo{Name: "web"})},
	} {
		if writes, found, err := recordsOf(instances, objects, "hostler"); err != nil || found != 0 || len(writes) != 0 {
			t.Errorf("%s: %d found, %+v, %v", name, found, writes, err)
		}
	}
}
