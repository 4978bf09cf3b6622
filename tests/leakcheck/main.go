// Command leakcheck is an independent auditor: it writes down what a host
// has that hostler or its tests could leave behind, and later says what is
// different. It shares no code with hostler and asks only the host's own
// tools.
//
//	leakcheck snapshot FILE   write down the host as it is
//	leakcheck compare FILE    list every difference; exit 1 if there is one
//
// It makes no exceptions but one: a package that has another version than
// before is listed and is no difference, since an installation may bring
// upgrades of packages that were there. What a host needs before a run (packages, a daemon
// that stays up) is made ready before the snapshot.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"
	"time"
)

// Snapshot holds per class the set of things found, each as one line.
type Snapshot map[string][]string

// settle is how long compare waits for what goes away by itself: a dnsmasq
// told to end, a loop device that clears when its last user closes it.
const settle = 20 * time.Second

func main() {
	if len(os.Args) != 3 {
		fail("usage: leakcheck snapshot|compare FILE")
	}
	verb, file := os.Args[1], os.Args[2]
	switch verb {
	case "snapshot":
		b, err := json.MarshalIndent(take(), "", " ")
		if err == nil {
			err = os.WriteFile(file, b, 0o600)
		}
		if err != nil {
			fail("cannot write the snapshot: %v", err)
		}
	case "compare":
		b, err := os.ReadFile(file)
		if err != nil {
			fail("cannot read the snapshot: %v", err)
		}
		var before Snapshot
		if err := json.Unmarshal(b, &before); err != nil {
			fail("cannot read the snapshot %s: %v", file, err)
		}
		compare(before)
	default:
		fail("unknown verb %q: snapshot or compare", verb)
	}
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(2)
}

func compare(before Snapshot) {
	var diff, upgrades []string
	for deadline := time.Now().Add(settle); ; time.Sleep(time.Second) {
		diff, upgrades = Diff(before, take())
		if len(diff) == 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, line := range diff {
		fmt.Println(line)
	}
	if len(diff) > 0 {
		fmt.Printf("%d differences\n", len(diff))
		os.Exit(1)
	}
	for _, line := range upgrades {
		fmt.Println("upgraded:", line)
	}
	classes := make([]string, 0, len(before))
	for class := range before {
		classes = append(classes, class)
	}
	sort.Strings(classes)
	fmt.Printf("no difference in %d classes: %v\n", len(classes), classes)
}

// Diff lists what is only in one of two snapshots, "+" is new, "-" is gone, and
// apart from that the packages that are in both in different versions.
func Diff(before, after Snapshot) (lines, upgrades []string) {
	classes := map[string]bool{}
	for class := range before {
		classes[class] = true
	}
	for class := range after {
		classes[class] = true
	}
	for class := range classes {
		count := map[string]int{}
		for _, item := range before[class] {
			count[item]--
		}
		for _, item := range after[class] {
			count[item]++
		}
		if class == parametersClass {
			forgetLinks(count, before[class], after[class])
		}
		if class == packagesClass {
			upgrades = takeUpgrades(count)
		}
		for item, n := range count {
			for ; n > 0; n-- {
				lines = append(lines, class+": + "+item)
			}
			for ; n < 0; n++ {
				lines = append(lines, class+": - "+item)
			}
		}
	}
	sort.Strings(lines)
	return lines, upgrades
}

const packagesClass = "packages"

// takeUpgrades takes the packages out of count that are installed in both
// snapshots and have different versions.
func takeUpgrades(count map[string]int) (lines []string) {
	was, is := map[string]string{}, map[string]string{}
	for item, n := range count {
		fields := strings.Fields(item) // name, version, state
		if len(fields) != 3 || fields[2] != "installed" {
			continue
		}
		if n < 0 {
			was[fields[0]] = fields[1]
		} else if n > 0 {
			is[fields[0]] = fields[1]
		}
	}
	for name, from := range was {
		if to, there := is[name]; there {
			delete(count, name+" "+from+" installed")
			delete(count, name+" "+to+" installed")
			lines = append(lines, name+" from "+from+" to "+to)
		}
	}
	sort.Strings(lines)
	return lines
}

const parametersClass = "parameters"

var ofLink = regexp.MustCompile(`^net/ipv[46]/conf/([^/]+)/`)

// forgetLinks drops the parameters of links that are in one snapshot only:
// they come and go with the link, which is a difference of its own.
func forgetLinks(count map[string]int, before, after []string) {
	seen := map[string]int{}
	for bit, items := range [][]string{before, after} {
		for _, item := range items {
			if link := ofLink.FindStringSubmatch(item); link != nil {
				seen[link[1]] |= 1 << bit
			}
		}
	}
	for item := range count {
		if link := ofLink.FindStringSubmatch(item); link != nil && seen[link[1]] != 3 {
			delete(count, item)
		}
	}
}
