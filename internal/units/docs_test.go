package units

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// names are the capabilities in use.
var names = map[int]string{
	unix.CAP_CHOWN: "CAP_CHOWN", unix.CAP_DAC_OVERRIDE: "CAP_DAC_OVERRIDE", unix.CAP_DAC_READ_SEARCH: "CAP_DAC_READ_SEARCH",
	unix.CAP_FOWNER: "CAP_FOWNER", unix.CAP_FSETID: "CAP_FSETID", unix.CAP_KILL: "CAP_KILL", unix.CAP_MAC_ADMIN: "CAP_MAC_ADMIN",
	unix.CAP_MKNOD: "CAP_MKNOD", unix.CAP_NET_ADMIN: "CAP_NET_ADMIN", unix.CAP_NET_BIND_SERVICE: "CAP_NET_BIND_SERVICE",
	unix.CAP_NET_RAW: "CAP_NET_RAW", unix.CAP_SETFCAP: "CAP_SETFCAP", unix.CAP_SETGID: "CAP_SETGID", unix.CAP_SETUID: "CAP_SETUID",
	unix.CAP_SYS_ADMIN: "CAP_SYS_ADMIN", unix.CAP_SYS_CHROOT: "CAP_SYS_CHROOT", unix.CAP_SYS_PTRACE: "CAP_SYS_PTRACE",
	unix.CAP_SYS_RESOURCE: "CAP_SYS_RESOURCE",
}

// The table in docs/ARCHITECTURE.md names the capabilities of every unit, each
// with a reason.
func TestCapabilitiesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "<!-- capabilities:begin -->\n")
	table, _, _ = strings.Cut(table, "<!-- capabilities:end -->")
	documented := map[string][]string{}
	for line := range strings.Lines(table) {
		fields := strings.Split(line, "|")
		if len(fields) != 5 || !strings.Contains(fields[1], "`") {
			continue
		}
		unit := strings.Trim(fields[1], " `")
		if strings.TrimSpace(fields[3]) == "" {
			t.Errorf("%s: no reason for%s", unit, fields[2])
		}
		if strings.TrimSpace(fields[2]) != "none" {
			documented[unit] = append(documented[unit], strings.Fields(fields[2])...)
		} else if documented[unit] == nil {
			documented[unit] = []string{}
		}
	}
	actual := map[string][]string{
		"hostlerd.service":             bounding(t, "../../debian/hostler.hostlerd.service"),
		"hostler-provisioner@.service": bounding(t, "../../debian/hostler-provisioner@.service"),
	}
	for _, k := range []Kind{Apt, Image, Scan, Users, DNSMasq, DHClient, DHCPCD, Grow, Trial, Guests} {
		var set []string
		if k.full {
			set = []string{"all"}
		}
		for _, c := range k.capabilities {
			set = append(set, names[c])
		}
		unit := k.unit("*")
		actual[strings.Replace(unit, "-_.service", "-*.service", 1)] = set
	}
	for unit := range maps.Keys(documented) {
		if actual[unit] == nil {
			t.Errorf("%s is no unit", unit)
		}
	}
	for unit, set := range actual {
		slices.Sort(set)
		slices.Sort(documented[unit])
		if !slices.Equal(set, documented[unit]) {
			t.Errorf("%s has %v, and the page says %v", unit, set, documented[unit])
		}
	}
}

// bounding returns the capabilities in a unit file.
func bounding(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, set, found := strings.Cut(string(text), "\nCapabilityBoundingSet=")
	if !found {
		t.Fatalf("%s has no bounding set", file)
	}
	set, _, _ = strings.Cut(set, "\n")
	return append([]string{}, strings.Fields(set)...)
}
