//go:build !race

package internal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
)

// licences are the licences of dependencies, each with words that occur only in
// its text; ok permits linking with an Apache-2.0 program. The first match
// counts.
var licences = []struct {
	name string
	text *regexp.Regexp
	ok   bool
}{
	{"AGPL", regexp.MustCompile(`(?i)GNU AFFERO GENERAL PUBLIC LICENSE`), false},
	{"LGPL with linking exception", regexp.MustCompile(`(?is)special exception to the GNU Lesser General Public License.*links statically or dynamically`), true},
	{"LGPL", regexp.MustCompile(`GNU LESSER GENERAL PUBLIC LICENSE`), false},
	{"MPL-2.0", regexp.MustCompile(`Mozilla Public License,? [Vv]ersion 2\.0`), true},
	{"BSD or GPL as one likes", regexp.MustCompile(`SPDX-License-Identifier: BSD-3-Clause OR GPL-2\.0`), true},
	{"GPL", regexp.MustCompile(`GNU GENERAL PUBLIC LICENSE`), false},
	{"Apache-2.0", regexp.MustCompile(`(?s)Apache License[\s=_*,]+Version 2\.0`), true},
	{"MIT", regexp.MustCompile(`(?i)Permission is hereby granted, free of charge`), true},
	{"BSD", regexp.MustCompile(`(?s)Redistribution\s+and use in source and binary forms`), true},
	{"ISC", regexp.MustCompile(`(?s)Permission to use, copy, modify, and(/or)? distribute`), true},
	{"public domain", regexp.MustCompile(`(?i)(public domain|unlicense)`), true},
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[sc]e|copying|unlicense)([.-].*)?$`)

// Every package that is linked into the programs or the tests has a permitted
// licence. A licence file in the package's folder takes precedence over its
// module's.
func TestLicences(t *testing.T) {
	cmd := exec.Command("go", "list", "-test", "-deps", "-tags", "integration,long,failpoint", "-f", "{{if .Module}}{{if not .Module.Main}}{{.Module.Path}} {{.Module.Dir}} {{.Dir}}{{end}}{{end}}", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot list the dependencies: %v", err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		module, top, dir := fields[0], fields[1], fields[2]
		file := nearestLicence(top, dir)
		if file == "" {
			t.Errorf("%s has no licence file", module)
			continue
		}
		if seen[file] {
			continue
		}
		seen[file] = true
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, ok := licenceOf(string(b))
		t.Logf("%-50s %s", module, name)
		if !ok {
			t.Errorf("%s (%s) is under %s", module, strings.TrimPrefix(dir, top+"/"), name)
		}
	}
	if len(seen) == 0 {
		t.Error("found no dependency: nothing was checked")
	}
}

func licenceOf(text string) (name string, ok bool) {
	for _, l := range licences {
		if l.text.MatchString(text) {
			return l.name, l.ok
		}
	}
	return "an unknown licence", false
}

// nearestLicence looks in a package's folder and its parents up to its module's
// top.
func nearestLicence(top, dir string) string {
	for {
		entries, _ := os.ReadDir(dir)
		var found []string
		for _, e := range entries {
			if !e.IsDir() && licenceFile.MatchString(e.Name()) {
				found = append(found, filepath.Join(dir, e.Name()))
			}
		}
		if len(found) > 0 {
			sort.Strings(found)
			return found[0]
		}
		if dir == top || len(dir) <= len(top) {
			return ""
		}
		dir = filepath.Dir(dir)
	}
}
