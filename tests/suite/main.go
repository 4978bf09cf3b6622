// Command suite runs the whole test suite, phase by phase, and ends with the
// line "N passed, N failed". See `make help` for its ways to run. Arguments
// name the phases to run; without any, all are.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"hostler/tests/gotest"
)

func main() {
	long := flag.Bool("long", false, "run the long campaigns only")
	vm := flag.Bool("vm", false, "run the scenarios on virtual machines only: all of them or, on the releases that the arguments name, the scenario of the whole suite")
	bench := flag.Bool("bench", false, "run the benchmarks only")
	compare := flag.String("compare", "", "with -bench: the figures of an earlier run")
	fuzz := flag.Duration("fuzz", 0, "run every fuzz target for so long, nothing else")
	hosts := flag.Bool("hosts", false, "try the package on a host of each release, or of those that the arguments name")
	attacks := flag.Bool("attack", false, "run the attacks only")
	flag.Parse()
	if _, err := os.Stat("go.mod"); err != nil {
		fmt.Fprintln(os.Stderr, "cannot run the suite: not in the top folder of the clone")
		os.Exit(2)
	}
	s := &suite{start: time.Now(), only: flag.Args(), reasons: map[string]error{}}
	switch {
	case *long:
		s.campaigns()
	case *vm:
		s.machines()
	case *bench:
		s.benchmarks(*compare)
	case *hosts:
		s.hosts()
	case *attacks:
		s.attacks()
	case *fuzz > 0:
		s.fuzz(*fuzz)
	default:
		s.all()
	}
	os.Exit(s.close())
}

type suite struct {
	results gotest.Results
	start   time.Time
	only    []string // phases; empty is all
	table   []string
	reasons map[string]error // of the phases that failed
}

// phase runs one part, times it and goes on whatever came of it: a person
// wants the whole picture of one run. A failure that no test accounts for
// counts as one failed test.
func (s *suite) phase(name string, run func() error) {
	if len(s.only) > 0 && !slices.Contains(s.only, name) {
		return
	}
	fmt.Printf("\n== %s\n", name)
	start, failedBefore := time.Now(), s.results.Count("fail")
	err := run()
	word := "ok"
	if err != nil {
		word = "FAILED"
		fmt.Printf("%s: %v\n", name, err)
		s.reasons[name] = err
		if s.results.Count("fail") == failedBefore {
			s.results.Record("phase "+name, "fail")
		}
	}
	s.table = append(s.table, fmt.Sprintf("%-40s %7.1f s  %s", name, time.Since(start).Seconds(), word))
}

// close prints what came of it and returns the exit code.
func (s *suite) close() int {
	fmt.Println("\n== phases")
	for _, row := range s.table {
		fmt.Println(row)
	}
	fmt.Printf("%-40s %7.1f s\n", "all", time.Since(s.start).Seconds())
	fmt.Println("\n== slowest tests")
	for _, line := range s.results.Slowest(25) {
		fmt.Println(line)
	}
	for _, name := range s.results.Names("fail") {
		fmt.Println("failed:", name)
		if reason := s.reasons[strings.TrimPrefix(name, "phase ")]; reason != nil {
			fmt.Println(reason)
		}
	}
	// Nothing here may be skipped: a skipped test shows nothing.
	for _, name := range s.results.Names("skip") {
		fmt.Println("failed (skipped):", name)
	}
	failed := s.results.Count("fail") + s.results.Count("skip")
	fmt.Printf("%d passed, %d failed\n", s.results.Count("pass"), failed)
	if failed > 0 {
		return 1
	}
	return 0
}

// command runs a command with its output passed on.
func command(name string, args ...string) error {
	fmt.Printf("$ %s %s\n", name, strings.Join(args, " "))
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
