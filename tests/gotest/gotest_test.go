package gotest

import (
	"bytes"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	const in = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: outcome: shown\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"loud\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"fail","Package":"p","Elapsed":1}
{"ImportPath":"q","Action":"build-output","Output":"q.go:1: wrong\n"}
{"ImportPath":"q","Action":"build-fail"}
{"Action":"fail","Package":"q"}
{"Action":"skip","Package":"notests"}
not json
`
	var r Results
	var out bytes.Buffer
	for range 2 { // a second run of the same tests counts once
		if err := r.Read(strings.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
	}
	if p, f, s := r.Count("pass"), r.Count("fail"), r.Count("skip"); p != 1 || f != 2 || s != 1 {
		t.Errorf("passed %d, failed %d, skipped %d; want 1, 2 (TestB and q), 1", p, f, s)
	}
	if got := strings.Join(r.Names("fail"), ","); got != "p TestB,q" {
		t.Errorf("failed: %s", got)
	}
	for _, want := range []string{"loud", "outcome: shown", "q.go:1: wrong", "not json"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "quiet") {
		t.Errorf("output of a passed test is shown:\n%s", &out)
	}
}

// A test that failed once stays failed when a later run passes.
func TestFailureStays(t *testing.T) {
	var r Results
	r.Record("p TestA", "fail")
	r.Record("p TestA", "pass")
	if r.Count("fail") != 1 || r.Count("pass") != 0 {
		t.Error("a failure was overwritten")
	}
}
