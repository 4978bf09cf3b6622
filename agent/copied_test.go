package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
)

// A copy of a host has the host's store and another machine-id. It deletes
// nothing and says why, at every start of the agent, until the user adopts it.
// Each of two copies decides for itself, and the original is not affected.
func TestACopiedHostDeletesNothing(t *testing.T) {
	l := newLossyHost(t)
	says := func() bool {
		return slices.ContainsFunc(l.allNotices(t.Context()), func(n string) bool { return strings.Contains(n, "`hostler adopt --host`") })
	}
	deletes := func(when string, want bool) {
		t.Helper()
		record, err := l.hostRecord(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if names := l.harvested(); slices.Contains(names, "orphan") != want {
			t.Errorf("%s: harvested %q", when, names)
		}
		for _, steps := range []spec.ContainerType{spec.LXD, ""} {
			if why := record.Recovery.Withheld(steps); (why == "") != want {
				t.Errorf("%s: steps of %q wait for %q", when, steps, why)
			}
		}
		if record.HarvestsUnknown() != want || says() == want {
			t.Errorf("%s: harvests unknown %v, notices %q", when, record.HarvestsUnknown(), l.allNotices(t.Context()))
		}
	}
	l.machine = "original"
	l.begin()
	l.made("kept")
	l.lxd.Add(stamped("orphan", "uid-orphan", "hostler"))
	deletes("the original", true)
	l.close()
	l.copyState("state", "image")
	for _, machine := range []string{"first", "second"} {
		l.copyState("image", "state")
		for _, id := range []string{machine, "", machine} {
			l.machine = id
			l.begin()
			deletes("the "+machine+" copy", false)
			l.close()
		}
		l.begin()
		if err := l.object().Update(t.Context(), func(r *spec.HostRecord, _ *spec.HostStatus) { r.Recovery.AdoptHost() }); err != nil {
			t.Fatal(err)
		}
		deletes("the "+machine+" copy, adopted", true)
		l.close()
		l.begin()
		deletes("the "+machine+" copy, adopted and started again", true)
		l.close()
	}
	l.copyState("image", "state")
	for _, c := range []struct {
		machine string
		want    bool
	}{{"original", true}, {"", false}, {"original", true}, {"", false}} {
		l.machine = c.machine
		l.begin()
		deletes("the original with the machine-id '"+c.machine+"'", c.want)
		l.close()
	}
	for _, machine := range []string{"", "", "later"} { // adopted without a machine-id, then it gets one
		l.machine = machine
		l.begin()
		if err := l.object().Update(t.Context(), func(r *spec.HostRecord, _ *spec.HostStatus) { r.Recovery.AdoptHost() }); err != nil {
			t.Fatal(err)
		}
		deletes("an adopted host", true)
		l.close()
	}
	l.machine = "another"
	l.begin()
	deletes("a copy of the adopted host", false)
	l.close()
}

// Only a whole machine-id counts; an image for several hosts has none.
func TestDigestOfTheMachineID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "machine-id")
	if got := machineDigest(path); got != "" {
		t.Errorf("without a file: %q", got)
	}
	digests := map[string]bool{}
	for content, known := range map[string]bool{
		"": false, "uninitialized\n": false, "0123": false,
		"0123456789abcdef0123456789abcdef\n": true, "1123456789abcdef0123456789abcdef": true,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got := machineDigest(path)
		if (got != "") != known || known && (digests[got] || strings.Contains(content, got)) {
			t.Errorf("%q: %q", content, got)
		}
		digests[got] = true
	}
}
