package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// attack marks a test that attacks the agent: the last line of its comment
// names the target, for example "// Attack: network".
var attack = regexp.MustCompile(`(?m)^// Attack: ([\w ]+)\nfunc (Test\w+)\(t \*testing\.T\)`)

// attackLimit bounds the attacks of one package.
const attackLimit = "5m"

// attacks is `make attack`: it runs the marked tests, target by target, and
// prints how many attacks were tried and how many the agent withstood. They use
// loopback addresses, network namespaces and daemons of their own.
func (s *suite) attacks() {
	targets := map[string]map[string][]string{} // test names by target and package
	for _, pkg := range packagesWith(attack) {
		for _, m := range attack.FindAllStringSubmatch(source(pkg), -1) {
			if targets[m[1]] == nil {
				targets[m[1]] = map[string][]string{}
			}
			targets[m[1]][pkg] = append(targets[m[1]][pkg], m[2])
		}
	}
	var rows []string
	for _, target := range slices.Sorted(maps.Keys(targets)) {
		tried, held := 0, 0
		s.phase(target, func() (failed error) {
			for _, pkg := range slices.Sorted(maps.Keys(targets[target])) {
				names := targets[target][pkg]
				err := s.goTest([]string{pkg}, "-tags", "integration,failpoint", "-count=1", "-timeout", attackLimit, "-run", "^("+strings.Join(names, "|")+")$")
				if err != nil {
					failed = err
				}
				passed := s.results.Names("pass")
				for _, name := range names {
					tried++
					if slices.Contains(passed, "hostler"+pkg[1:]+" "+name) {
						held++
					}
				}
			}
			return failed
		})
		rows = append(rows, fmt.Sprintf("%-20s tried %3d, held %3d", target, tried, held))
	}
	fmt.Println("\n== attacks")
	for _, row := range rows {
		fmt.Println(row)
	}
}
