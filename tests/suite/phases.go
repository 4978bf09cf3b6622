package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"hostler/tests/figures"
)

// Limits of one `go test` call; far above what each needs, so that only a
// hang meets them.
const (
	unitLimit        = "5m"
	raceLimit        = "10m"
	integrationLimit = "20m"
	blackBoxLimit    = "30m"
	benchLimit       = "1h"
	longLimit        = "12h"
)

// all is `make test`. The host must look the same after the integration and
// black-box phases as before.
func (s *suite) all() {
	s.phase("build", func() error { return command("make", "build") })
	s.phase("lint", func() error { return command("make", "lint") })
	s.phase("unit without race", func() error {
		return s.goTest(packagesWith(regexp.MustCompile(`(?m)^//go:build .*!race`)), "-timeout", unitLimit)
	})
	s.phase("unit", s.race)

	before := filepath.Join(".cache", "host-before.json")
	auditor := filepath.Join(".cache", "bin", "leakcheck")
	s.phase("snapshot", func() error {
		if err := command("make", auditor); err != nil {
			return err
		}
		return command(auditor, "snapshot", before)
	})
	inside, outside := taggedPackages("integration")
	isApart := func(pkg string) bool { return slices.Contains(apart, pkg) }
	inside, outside = slices.DeleteFunc(inside, isApart), slices.DeleteFunc(outside, isApart)
	s.phase("integration", func() error {
		return beside(
			func() error {
				return s.goTest(inside, "-tags", "integration,failpoint", "-count=1", "-p", "1", "-timeout", integrationLimit)
			},
			func() error {
				return s.goTest(apart, "-tags", "integration", "-count=1", "-p", "1", "-timeout", blackBoxLimit)
			})
	})
	s.phase("black box", func() error {
		return s.goTest(outside, "-tags", "integration", "-count=1", "-p", "1", "-timeout", blackBoxLimit)
	})
	s.phase("leak check", func() error {
		found, err := exec.Command(auditor, "compare", before).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, found)
		}
		fmt.Printf("%s", found)
		return nil
	})
}

// machinePackage tests on a Debian VM.
const machinePackage = "./tests/vm"

// apart are packages that touch nothing of the host but files below .cache and in
// folders of their own, so other tests can run at the same time. The integration tests
// mostly wait for one thing after another, which leaves a processor to these.
var apart = []string{machinePackage, "./tests/cloudinit", "./agent/conffiles"}

// beside runs both functions at the same time and returns the errors of both.
func beside(one, other func() error) error {
	ended := make(chan error)
	go func() { ended <- other() }()
	return errors.Join(one(), <-ended)
}

// campaigns is `make test-long`.
func (s *suite) campaigns() {
	// The tests of these packages use the daemon of this name, else LXD.
	s.phase("incus", func() error {
		if err := os.Setenv("HOSTLER_TEST_DAEMON", "incus"); err != nil {
			return err
		}
		defer os.Unsetenv("HOSTLER_TEST_DAEMON")
		packages := []string{"./containerbroker/lxd", "./initialisers/lxd"}
		return s.goTest(packages, "-tags", "integration,failpoint", "-count=1", "-p", "1", "-timeout", integrationLimit)
	})
	inside, outside := taggedPackages("long")
	s.phase("campaigns", func() error {
		return s.goTest(append(inside, outside...), "-tags", "integration,long", "-count=1", "-p", "1", "-timeout", longLimit)
	})
}

// benchmarks is `make bench`. The benchmarks print their figures as they go; at
// the end all stand in one table and in a file, which a later run compares
// itself with.
func (s *suite) benchmarks(compare string) {
	s.phase("build", func() error { return command("make", "build") })
	path, err := filepath.Abs(filepath.Join(".cache", "bench.json"))
	if err == nil {
		programs := filepath.Join(filepath.Dir(path), "incus-extra", "usr", "bin") // see tests/prepare
		err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path), os.Setenv(figures.Variable, path),
			os.Setenv("PATH", programs+":"+os.Getenv("PATH")))
	}
	if err != nil {
		s.phase("bench", func() error { return err })
		return
	}
	for _, pkg := range packagesWith(regexp.MustCompile(`(?m)^func Benchmark\w+\(b \*testing\.B\)`)) {
		s.phase("bench "+pkg, func() error {
			return command("go", "test", "-tags", "integration", "-run", "^$", "-bench", ".", "-benchtime", "1x", "-count=1", "-p", "1", "-timeout", benchLimit, pkg)
		})
	}
	s.phase("figures", func() error {
		after, err := figures.Read(path)
		if err != nil {
			return err
		}
		if err := figures.Table(os.Stdout, after); err != nil || compare == "" {
			return err
		}
		before, err := figures.Read(compare)
		if err != nil {
			return err
		}
		figures.Compare(os.Stdout, before, after)
		return nil
	})
	fmt.Printf("The figures are in %s; COMPARE=FILE compares a later run with a copy.\n", path)
}

// fuzz runs each fuzz target for a while: go test takes one target at a time.
func (s *suite) fuzz(each time.Duration) {
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\)`)
	for _, pkg := range packagesWith(target) {
		for _, name := range matchesIn(pkg, target) {
			s.phase(pkg+" "+name, func() error {
				args := []string{"test", "-tags", "failpoint", "-run", "^$", "-fuzz", "^" + name + "$", "-fuzztime", each.String(), pkg}
				out, err := exec.Command("go", args...).CombinedOutput()
				fmt.Printf("%s", out)
				if err == nil && !bytes.Contains(out, []byte("fuzz: elapsed")) {
					err = errors.New("nothing was fuzzed")
				}
				if err == nil {
					s.results.Record(pkg+" "+name, "pass")
				}
				return err
			})
		}
	}
}

// race runs the unit tests under the race detector, which needs cgo, with the
// crash points compiled in. Only the packages whose tests differ without the race
// detector also run without it. The engine of SQLite is C translated to Go, of which one connection's goroutine runs all:
// watched too, it takes four times as long, and more than everything else. Its
// driver in package modernc.org/sqlite, which reads the values of callers, is
// watched.
func (s *suite) race() error {
	return s.results.Run(os.Stdout, []string{"CGO_ENABLED=1"}, "-race",
		"-gcflags=modernc.org/sqlite/lib=-race=false", "-gcflags=modernc.org/libc/...=-race=false", "-gcflags=modernc.org/memory=-race=false",
		"-tags", "failpoint", "-timeout", raceLimit, "./...")
}

// goTest adds pkgs to args; no packages means that args names them.
func (s *suite) goTest(pkgs []string, args ...string) error {
	if args[len(args)-1] != "./..." && len(pkgs) == 0 {
		fmt.Println("no tests")
		return nil
	}
	return s.results.Run(os.Stdout, nil, append(args, pkgs...)...)
}

// taggedPackages finds the packages with test files of a build tag: those
// beside the code, and those under tests/.
func taggedPackages(tag string) (inside, outside []string) {
	constraint := regexp.MustCompile(`(?m)^//go:build .*\b` + tag + `\b`)
	for _, pkg := range packagesWith(constraint) {
		if strings.HasPrefix(pkg, "./tests/") {
			outside = append(outside, pkg)
		} else {
			inside = append(inside, pkg)
		}
	}
	return inside, outside
}

// packagesWith lists the packages that have a test file of the clone in which
// the expression is found.
func packagesWith(expr *regexp.Regexp) []string {
	found := map[string]bool{}
	for _, file := range testFiles() {
		if b, err := os.ReadFile(file); err == nil && expr.Match(b) {
			found["./"+filepath.Dir(file)] = true
		}
	}
	pkgs := make([]string, 0, len(found))
	for pkg := range found {
		pkgs = append(pkgs, pkg)
	}
	sort.Strings(pkgs)
	return pkgs
}

func matchesIn(pkg string, expr *regexp.Regexp) (names []string) {
	for _, m := range expr.FindAllStringSubmatch(source(pkg), -1) {
		names = append(names, m[1])
	}
	return names
}

// source is the text of all test files of a package.
func source(pkg string) string {
	var text strings.Builder
	for _, file := range testFiles() {
		if "./"+filepath.Dir(file) == pkg {
			b, _ := os.ReadFile(file)
			text.Write(b)
		}
	}
	return text.String()
}

// testFiles asks git, so that what is lying about (a build folder, a vendor
// tree) is not taken for part of the project. A copy without its .git is
// walked.
func testFiles() (files []string) {
	out, err := exec.Command("git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "*_test.go").Output()
	if err != nil {
		_ = filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, "_test.go") {
				files = append(files, path)
			}
			return nil
		})
		return files
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if _, err := os.Stat(lines.Text()); err == nil {
			files = append(files, lines.Text())
		}
	}
	return files
}
