package containerbroker_test

import (
	"slices"
	"strings"
	"testing"

	"hostler/containerbroker"
)

// Values that may hold secrets are shown as set or changed only.
func TestChangesOfSecretsAreNotShown(t *testing.T) {
	for _, c := range []struct{ have, from string }{{"", ""}, {"#cloud-config\npassword: old\n", "(set)"}} {
		want := containerbroker.Settings{UserData: "#cloud-config\npassword: new\n"}
		changes := containerbroker.Compare(want, containerbroker.Instance{Stored: containerbroker.Settings{UserData: c.have}}, nil)
		if len(changes) != 1 || changes[0].Field != containerbroker.FieldUserData || changes[0].From != c.from || changes[0].To != "(changed)" {
			t.Errorf("from %q: %+v", c.have, changes)
		}
	}
}

// A setting that is stored as wanted differs if the running instance can get it
// without a restart; otherwise it follows at the next start.
func TestStoredAndRunningSettings(t *testing.T) {
	count := func(n int) containerbroker.Settings {
		return containerbroker.Settings{Properties: containerbroker.Properties{CPUs: n}}
	}
	more := func(field string, want containerbroker.Settings, i containerbroker.Instance) (containerbroker.Impact, string) {
		if field == containerbroker.FieldCPUs && want.CPUs < i.Now().CPUs {
			return containerbroker.ImpactRestart, "fewer"
		}
		return "", ""
	}
	for _, c := range []struct {
		want, stored, running int
		change                string
	}{
		{2, 2, 2, ""},
		{3, 3, 2, "2 3 live, stored"},
		{2, 2, 3, ""},
		{3, 2, 3, "2 3 live"},
		{3, 2, 2, "2 3 live"},
		{2, 3, 3, "3 2 restart"},
		{4, 3, 2, "2 4 live"},
		{3, 3, 0, ""}, // does not run
		{3, 2, 0, "2 3 live"},
	} {
		i := containerbroker.Instance{Stored: count(c.stored)}
		if c.running != 0 {
			running := count(c.running)
			i.Running = &running
		}
		got := ""
		for _, x := range containerbroker.Compare(count(c.want), i, more) {
			got += x.From + " " + x.To + " " + string(x.Impact)
			if x.Stored {
				got += ", stored"
			}
		}
		if got != c.change {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// Every setting of the table and every device is compared, and Take makes it
// equal.
func TestTakeMakesEqual(t *testing.T) {
	want := containerbroker.Settings{
		Properties: containerbroker.Properties{CPUs: 2, Memory: 1, RootDisk: 1, Autostart: true, Privileged: true, Nesting: true},
		ImageID:    "b", Pool: "b", NICs: map[string]string{"eth0": "b"}, Disks: map[string]string{"vol-a": "a"},
		Sizes: map[string]int64{"vol-a": 1 << 20}, UserData: "b", NetworkConfig: "b", Record: "b",
	}
	i := containerbroker.Instance{Stored: containerbroker.Settings{ImageID: "a", Pool: "a", NICs: map[string]string{"eth1": "a"}}}
	changes := containerbroker.Compare(want, i, nil)
	if len(changes) != 14 || !slices.IsSortedFunc(changes, func(a, b containerbroker.Change) int { return strings.Compare(a.Field, b.Field) }) {
		t.Errorf("%d changes: %+v", len(changes), changes)
	}
	for _, c := range changes {
		if !i.Stored.Take(c.Field, want) || i.Stored.Take(c.Field, want) {
			t.Errorf("%s is not taken once", c.Field)
		}
	}
	if left := containerbroker.Compare(want, i, nil); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}
