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

// A running guest keeps an interface until it starts again if the interface would be
// replaced, or if the guest must configure its interfaces anew.
func TestInterfacesThatARunningGuestKeeps(t *testing.T) {
	eth0 := containerbroker.NIC{Name: "eth0", Bridge: "br0", MAC: "00:16:3e:00:00:01"}
	static := func(name string) containerbroker.NIC {
		return containerbroker.NIC{Name: name, Bridge: "br0", MAC: "00:16:3e:00:00:01", Static: true, Addresses: []string{"10.20.0.10/24"}}
	}
	changed := func(n containerbroker.NIC, change func(*containerbroker.NIC)) containerbroker.NIC {
		change(&n)
		return n
	}
	settings := func(nics ...containerbroker.NIC) containerbroker.Settings {
		s, err := containerbroker.SettingsOf(containerbroker.Machine{NICs: nics})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for what, c := range map[string]struct {
		have, want containerbroker.Settings
		impacts    string
	}{
		"an MTU":          {settings(eth0), settings(changed(eth0, func(n *containerbroker.NIC) { n.MTU = 1400 })), "nic eth0 restart; "},
		"no MTU any more": {settings(changed(eth0, func(n *containerbroker.NIC) { n.MTU = 1400 })), settings(eth0), "nic eth0 restart; "},
		"a bridge":        {settings(eth0), settings(changed(eth0, func(n *containerbroker.NIC) { n.Bridge, n.MTU = "br1", 1400 })), "nic eth0 live; "},
		"a name":          {settings(static("eth0")), settings(static("lan0")), "network-config restart; nic eth0 restart; nic lan0 restart; "},
		"one more":        {settings(static("eth0")), settings(static("eth0"), changed(eth0, func(n *containerbroker.NIC) { n.Name, n.MAC = "eth1", "00:16:3e:00:00:02" })), "network-config restart; nic eth1 live; "},
		"one less":        {settings(static("eth0"), static("eth1")), settings(static("eth0")), "network-config live; nic eth1 live; "},
		"its lease":       {settings(static("eth0")), settings(changed(eth0, func(n *containerbroker.NIC) { n.Bridge = "br1" })), "network-config restart; nic eth0 live; "},
	} {
		got := ""
		for _, change := range containerbroker.Compare(c.want, containerbroker.Instance{Stored: c.have}, nil) {
			got += change.Field + " " + string(change.Impact) + "; "
		}
		if got != c.impacts {
			t.Errorf("%s: %s", what, got)
		}
	}
	named, remark := settings(eth0), settings(eth0)
	named.NICs["eth0"] += ", name lan0"
	if changes := containerbroker.Compare(settings(eth0), containerbroker.Instance{Stored: named}, nil); containerbroker.Worst(changes) != containerbroker.ImpactRestart {
		t.Errorf("a name that another process gave: %+v", changes)
	}
	remark.NICs["eth0"] += " (not made by hostler)"
	if changes := containerbroker.Compare(settings(eth0), containerbroker.Instance{Stored: remark}, nil); containerbroker.Worst(changes) != containerbroker.ImpactLive {
		t.Errorf("a remark: %+v", changes)
	}
}
