package gotest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
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

// Runs at the same time lose no test, and their output is not mixed.
func TestRunsAtTheSameTime(t *testing.T) {
	const runs, tests = 4, 100
	var r Results
	out, in := io.Pipe()
	var wait sync.WaitGroup
	for run := range runs {
		var events strings.Builder
		for test := range tests {
			for n := range 2 {
				fmt.Fprintf(&events, `{"Action":"output","Package":"p%[1]d","Test":"Test%[2]d","Output":"p%[1]d Test%[2]d line %[3]d\n"}`+"\n", run, test, n)
			}
			fmt.Fprintf(&events, `{"Action":"fail","Package":"p%d","Test":"Test%d"}`+"\n", run, test)
		}
		wait.Go(func() {
			if err := r.Read(strings.NewReader(events.String()), in); err != nil {
				t.Error(err)
			}
		})
	}
	go func() {
		wait.Wait()
		in.Close()
	}()
	before := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if line := lines.Text(); strings.HasSuffix(line, "line 1") && before != strings.TrimSuffix(line, "1")+"0" {
			t.Errorf("%q follows %q", line, before)
		}
		before = lines.Text()
	}
	if n := r.Count("fail"); n != runs*tests {
		t.Errorf("%d tests failed, not %d", n, runs*tests)
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

func TestSlowestTestsAreListed(t *testing.T) {
	var r Results
	events := `{"Action":"pass","Package":"p","Test":"TestA/sub","Elapsed":9}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":9.5}
{"Action":"fail","Package":"q","Test":"TestB","Elapsed":12}
`
	if err := r.Read(strings.NewReader(events), io.Discard); err != nil {
		t.Fatal(err)
	}
	if got, want := r.Slowest(5), []string{"  12.0 s  q TestB", "   9.5 s  p TestA"}; !slices.Equal(got, want) {
		t.Errorf("slowest: %q, want %q", got, want)
	}
}
