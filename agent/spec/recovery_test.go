package spec_test

import (
	"encoding/json"
	"slices"
	"testing"

	"hostler/agent/spec"
)

// A loss withholds destructive steps on the host's storage and networks until
// all is scanned, and those of a type until its own scan, or in an older copy of
// the store until all scans.
func TestDestructiveStepsWaitForTheRecovery(t *testing.T) {
	const kvm, lxd, both = "kvm to be compared with the records", "lxd to be compared with the records", "kvm, lxd to be compared with the records"
	types := []spec.ContainerType{spec.KVM, spec.LXD}
	for _, c := range []struct {
		name            string
		make            func(r *spec.Recovery)
		lxd, kvm, other string
	}{
		{"nothing was lost", func(*spec.Recovery) {}, "", "", ""},
		{"lost", func(r *spec.Recovery) { r.Begin(types); r.Done(spec.ScanStorage) }, both, both, both},
		{"lxd is scanned", func(r *spec.Recovery) { r.Begin(types); r.Done(spec.ScanStorage); r.Done("lxd") }, "", kvm, kvm},
		{"all is scanned", func(r *spec.Recovery) {
			r.Begin(types)
			r.Done(spec.ScanStorage)
			r.Done("lxd")
			r.Drop("kvm")
			r.End("new")
		}, "", "", ""},
		{"lxd starts late", func(r *spec.Recovery) {
			r.Begin(types)
			r.Done(spec.ScanStorage)
			r.Drop("kvm")
			r.Drop("lxd")
			r.End("new")
			r.Await("lxd")
			r.End("newer")
		}, lxd, "", lxd},
		{"lxd is set up", func(r *spec.Recovery) { r.Await("lxd") }, "", "", ""},
		{"an older copy with lxd scanned", func(r *spec.Recovery) {
			r.SetOld()
			r.Begin(types)
			r.Done(spec.ScanStorage)
			r.Done("lxd")
		}, kvm, kvm, kvm},
		{"opened again with lxd scanned", func(r *spec.Recovery) { r.Done("lxd"); r.Open("2", 7, types, types); r.Done("kvm") }, lxd, "", lxd},
		{"lxd did not answer", func(r *spec.Recovery) { r.Done("lxd"); r.Open("2", 7, types, types); r.Asked("lxd") }, lxd, kvm, ""},
		{"opened again after that", func(r *spec.Recovery) {
			r.Done("lxd")
			r.Open("2", 7, types, types)
			r.Asked("lxd")
			r.Open("3", 8, types, types)
		}, lxd, kvm, lxd},
		{"opened again", func(r *spec.Recovery) { r.Open("2", 7, types, types); r.Done("kvm") }, lxd, "", ""},
	} {
		r := spec.Recovery{Lineage: spec.Lineage{ID: "a"}}
		c.make(&r)
		var stored spec.Recovery
		if err := json.Unmarshal(spec.Encode(r), &stored); err != nil {
			t.Fatal(err)
		}
		if got := [3]string{stored.Withheld(spec.LXD), stored.Withheld(spec.KVM), stored.Withheld("")}; got != [3]string{c.lxd, c.kvm, c.other} {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// The recovery ends once, after the last scan; an older copy then has the new
// id, and its own id is a former id.
func TestRecoveryEndsWithTheLastScan(t *testing.T) {
	r := spec.Recovery{Lineage: spec.Lineage{ID: "old", Opened: 40}}
	r.SetOld()
	r.Begin([]spec.ContainerType{spec.LXD})
	for _, scan := range []string{spec.ScanStorage, "lxd"} {
		r.End("new")
		if r.Phase != spec.RecoveryScanning || r.ID != "old" || r.Scanned(scan) {
			t.Errorf("before the scan of %s: %+v", scan, r)
		}
		r.Done(scan)
	}
	r.End("new")
	r.End("newer")
	if r.Phase != spec.RecoveryWhole || r.ID != "new" || r.Old || r.Predecessors["old"] != 40 || !r.Scanned("lxd") || !r.Compared(spec.LXD) {
		t.Errorf("after all scans: %+v", r)
	}
}

// A host's record and status of an earlier version are read: the lineage, and
// the scans in the status.
func TestEarlierHostRecords(t *testing.T) {
	var record spec.HostRecord
	var status spec.HostStatus
	for text, into := range map[string]any{
		`{"config":{"harvest":"all"},"lineage":{"id":"a","opening":"b","opened":7,"former":{"c":9},"uncompared":{"kvm":{"opened":3}}}}`: &record,
		`{"known":["lxd"],"known-storage":true,"conf-device":"8:1","notices":["n"]}`:                                                    &status,
	} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	r := &record.Recovery
	r.Adopt(&status)
	r.Adopt(&status) // once only
	if !slices.Equal(r.Scans, []string{"lxd", spec.ScanStorage}) || !r.Compared(spec.LXD) || r.Compared(spec.KVM) ||
		r.ID != "a" || r.Opened != 7 || r.Predecessors["c"] != 9 || r.Uncompared[spec.KVM].Opened != 3 || !record.HarvestsUnknown() {
		t.Errorf("the record is %+v", record)
	}
	if text := string(spec.Encode(status)); text != `{"conf-device":"8:1","notices":["n"]}` {
		t.Errorf("the status is %s", text)
	}
}
