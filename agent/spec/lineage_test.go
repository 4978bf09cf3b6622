package spec_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
)

func TestMarksIdentifyTheOwner(t *testing.T) {
	l := spec.Lineage{ID: "a", Opening: "3", Opened: 100, Predecessors: map[string]int64{"lost": 50}}
	for mark, want := range map[string]spec.Origin{
		"":                        spec.OriginOurs, // of an earlier version
		"a 2 100":                 spec.OriginOurs,
		"a 2 101":                 spec.OriginNewer,
		l.Mark(7):                 spec.OriginOurs,
		l.Mark(1 << 60):           spec.OriginOurs, // made after the store was opened
		"lost 9 50":               spec.OriginOurs,
		"lost 9 51":               spec.OriginBeyond,
		"b 1 1":                   spec.OriginAnother,
		"a":                       spec.OriginAnother,
		"a 2 many":                spec.OriginAnother,
		"  ":                      spec.OriginAnother,
		"a 2 101 and more":        spec.OriginAnother,
		"a 2 -101":                spec.OriginOurs,
		"? ? ?":                   spec.OriginAnother,
		strings.Repeat(" ", 1000): spec.OriginAnother,
	} {
		if got := l.Of(mark); got != want {
			t.Errorf("%q is of origin %d, not %d", mark, got, want)
		}
	}
	var none spec.Lineage
	if none.Mark(5) != "" || none.Of("b 1 1") != spec.OriginOurs {
		t.Error("a store without an id tells marks from each other")
	}
}

// Marks of a type count as of this store's past only as far as the instances
// of the type were compared with the records.
func TestUncomparedTypesKeepTheirRevision(t *testing.T) {
	types := []spec.ContainerType{spec.LXD, spec.KVM}
	l := spec.Recovery{Lineage: spec.Lineage{ID: "a"}}
	open := func(opening string, revision int64) {
		t.Helper()
		restored := spec.Recovery{}
		if err := json.Unmarshal(spec.Encode(l), &restored); err != nil {
			t.Fatal(err)
		}
		l = restored
		l.Open(opening, revision, types, []spec.ContainerType{spec.LXD})
	}
	check := func(of spec.ContainerType, want map[string]spec.Origin) {
		t.Helper()
		for mark, origin := range want {
			if got := l.For(of).Of(mark); got != origin {
				t.Errorf("%s: %q is of origin %d, not %d", of, mark, got, origin)
			}
		}
	}
	open("1", 40)
	l.Done("lxd")
	open("2", 60)
	open("3", 80)
	open("4", 90)
	check(spec.LXD, map[string]spec.Origin{
		"a 1 60": spec.OriginOurs,
		"a 1 61": spec.OriginNewer, // opening 1 ended at 60 in this store
		"a 2 80": spec.OriginOurs,
		"a 2 81": spec.OriginNewer,
		"a 3 90": spec.OriginOurs,
		"a 4 99": spec.OriginOurs,
		"a x 60": spec.OriginOurs,
		"a x 61": spec.OriginNewer,
	})
	check(spec.KVM, map[string]spec.Origin{"a x 40": spec.OriginOurs, "a x 41": spec.OriginNewer})
	if n := len(l.Uncompared[spec.KVM].Openings); n > 0 {
		t.Errorf("%d openings are kept for a type without a provisioner", n)
	}
	l.Done("lxd")
	check(spec.LXD, map[string]spec.Origin{"a x 90": spec.OriginOurs, "a x 91": spec.OriginNewer})
	open("5", 95)
	l.SetOld()
	open("6", 97)
	if l.Opened != 40 || l.Opening != "6" || !l.Old || len(l.Uncompared) > 0 {
		t.Errorf("an older copy has the lineage %+v", l)
	}
}

// A hypervisor that stays away for good does not let the host record grow
// without end. A forgotten opening never hides an older copy.
func TestOpeningsAreLimited(t *testing.T) {
	types := []spec.ContainerType{spec.LXD}
	l := spec.Lineage{ID: "a"}
	for i := range int64(300) {
		l.Open(fmt.Sprint(i), 10*i, types, types)
	}
	if n := len(l.Uncompared[spec.LXD].Openings); n != 100 {
		t.Errorf("%d openings are kept", n)
	}
	of := l.For(spec.LXD)
	got := []spec.Origin{of.Of("a 298 2990"), of.Of("a 199 2000"), of.Of("a 198 1990"), of.Of("a 0 0")}
	if want := []spec.Origin{spec.OriginOurs, spec.OriginOurs, spec.OriginNewer, spec.OriginOurs}; !slices.Equal(got, want) {
		t.Errorf("the origins are %v, not %v", got, want)
	}
}
