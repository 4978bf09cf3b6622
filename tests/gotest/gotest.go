// Package gotest runs `go test -json` and keeps count: a test that is run in
// two phases counts once, and fails if either run failed.
package gotest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

// Outcome is how a test ended: pass, fail or skip.
type Outcome string

// outcome is how a test that passes tells of what it showed: t.Log with a
// text that begins so.
var outcome = regexp.MustCompile(`^ +[a-z_]+\.go:[0-9]+: outcome: `)

// Results holds one outcome per test, keyed "PACKAGE" or "PACKAGE TEST". Runs
// at the same time may share it.
type Results struct {
	mu    sync.Mutex // of the maps, and of the output of a test or package
	tests map[string]Outcome
	times map[string]float64 // seconds; a subtest counts to its test
}

func (r *Results) time(name string, seconds float64) {
	if r.times == nil {
		r.times = map[string]float64{}
	}
	r.times[name] = max(r.times[name], seconds)
}

// Slowest lists the tests that took longest, e.g. " 12.3 s  hostler/tests/deb
// TestPackageLife". A subtest counts to its test.
func (r *Results) Slowest(n int) (lines []string) {
	names := slices.SortedFunc(maps.Keys(r.times), func(a, b string) int { return cmp.Compare(r.times[b], r.times[a]) })
	for _, name := range names[:min(n, len(names))] {
		lines = append(lines, fmt.Sprintf("%6.1f s  %s", r.times[name], name))
	}
	return lines
}

// Record notes an outcome under a name; a failure is never overwritten.
func (r *Results) Record(name string, o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record(name, o)
}

func (r *Results) record(name string, o Outcome) {
	if r.tests == nil {
		r.tests = map[string]Outcome{}
	}
	if r.tests[name] != "fail" {
		r.tests[name] = o
	}
}

// Count says how many ended with an outcome.
func (r *Results) Count(o Outcome) (n int) {
	for _, got := range r.tests {
		if got == o {
			n++
		}
	}
	return n
}

// Names lists in order what ended with an outcome.
func (r *Results) Names(o Outcome) (names []string) {
	for name, got := range r.tests {
		if got == o {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Run runs `go test -json ARGS`, prints one line per package, the outcomes that
// tests tell of and the output of what failed, and records every test. The error speaks of the run as a
// whole; failed tests alone are an error too.
func (r *Results) Run(out io.Writer, env []string, args ...string) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start go test: %w", err)
	}
	if err := r.Read(stdout, out); err != nil {
		return fmt.Errorf("cannot read the output of go test: %w", err)
	}
	return cmd.Wait()
}

// Read takes the events of one run.
func (r *Results) Read(in io.Reader, out io.Writer) error {
	printed := map[string][]string{} // output by test, until it passes
	failed := map[string]bool{}      // packages in which a test failed
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Action != "" {
			r.take(e, printed, failed, out)
		} else if len(line) > 0 {
			_, _ = out.Write(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *Results) take(e event, printed map[string][]string, failed map[string]bool, out io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Package == "" {
		e.Package = e.ImportPath
	}
	name := strings.TrimSpace(e.Package + " " + e.Test)
	switch e.Action {
	case "output", "build-output":
		printed[name] = append(printed[name], e.Output)
		return
	case "build-fail":
		fmt.Fprint(out, strings.Join(printed[name], ""))
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	o := Outcome(e.Action)
	if e.Test == "" {
		r.endPackage(e, o, printed[name], failed[e.Package], out)
	} else {
		r.record(name, o)
		if !strings.Contains(e.Test, "/") {
			r.time(name, e.Elapsed)
		}
		failed[e.Package] = failed[e.Package] || o == "fail"
		for _, line := range printed[name] {
			if o != "pass" || outcome.MatchString(line) {
				fmt.Fprint(out, line)
			}
		}
	}
	delete(printed, name)
}

// endPackage notes a package that failed without a failed test: it did not
// build, panicked, timed out or left goroutines.
func (r *Results) endPackage(e event, o Outcome, output []string, testFailed bool, out io.Writer) {
	if o == "skip" { // no test files
		return
	}
	if o == "fail" && !testFailed {
		r.record(e.Package, o)
		fmt.Fprint(out, strings.Join(output, ""))
	}
	fmt.Fprintf(out, "  %-4s %6.1f s  %s\n", o, e.Elapsed, e.Package)
}
