package spec_test

import (
	"strings"
	"testing"

	"hostler/agent/spec"
)

func TestMarksTellWhoseAnInstanceIs(t *testing.T) {
	l := spec.Lineage{ID: "a", Opening: "3", Opened: 100, Former: map[string]int64{"lost": 50}}
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
