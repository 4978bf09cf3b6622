package kvm

import (
	"slices"
	"strings"
	"testing"

	"hostler/containerbroker"
)

// A guest that asks a DHCP server keeps its former address until its lease ends,
// for hours, unless it starts again. A definition does not show the address, nor
// does cloud-init's network-config.
func TestAnotherAddressWaitsForTheGuestsStart(t *testing.T) {
	m := machine()
	m.NICs = []containerbroker.NIC{{Name: "eth0", Bridge: "br0", MAC: "00:16:3e:00:00:01", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}}}
	plan := planned(t, m)
	plan.note.Addresses = plan.settings.Addresses
	defined, err := plan.domain()
	if err != nil {
		t.Fatal(err)
	}
	d := New(Options{})
	d.keys[""] = []byte("key")
	seen := func(n note) containerbroker.Instance {
		t.Helper()
		n.Namespace = "" // so that its key is not read
		def := definition{domain: *defined, note: &n, live: &life{domain: defined, slots: containerbroker.Unlimited}}
		i, err := d.instanceOf(t.Context(), nil, def, m.Name, containerbroker.StatusRunning)
		if err != nil {
			t.Fatal(err)
		}
		i.Stored.Record, i.Running.Record = m.Stamp.Record, m.Stamp.Record
		return i
	}
	noted := *noteOf(defined.Metadata.XML)
	for what, c := range map[string]struct {
		addresses []string
		bridge    string
		noted     map[string]string
		want      string
	}{
		"as before":             {m.NICs[0].Addresses, "br0", noted.Addresses, ""},
		"another":               {[]string{"192.0.2.3/24", "2001:db8::2/64"}, "br0", noted.Addresses, "nic eth0 restart"},
		"another network":       {[]string{"198.51.100.2/24"}, "br1", noted.Addresses, "nic eth0 restart"},
		"one more":              {append(slices.Clone(m.NICs[0].Addresses), "2001:db8:1::2/64"), "br0", noted.Addresses, "nic eth0 live"},
		"another bridge":        {m.NICs[0].Addresses, "br1", noted.Addresses, "nic eth0 live"},
		"of an earlier version": {m.NICs[0].Addresses, "br0", nil, "record live"},
		"of it, another bridge": {m.NICs[0].Addresses, "br1", nil, "nic eth0 live"},
	} {
		n, now := noted, m
		n.Addresses = c.noted
		now.NICs = slices.Clone(m.NICs)
		now.NICs[0].Addresses, now.NICs[0].Bridge = c.addresses, c.bridge
		i := seen(n)
		var got []string
		for range 2 { // Diff does not change the instance
			got = nil
			for _, change := range d.Diff(now, i) {
				if change.Field == containerbroker.FieldUserData {
					continue
				}
				got = append(got, change.Field+" "+string(change.Impact))
				if change.Impact == containerbroker.ImpactRestart && (change.Reason == "" || !strings.Contains(change.From, "192.0.2.2")) {
					t.Errorf("%s: %+v", what, change)
				}
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
		n.Addresses = addressesAfter(n.Addresses, map[string]string{"eth0": strings.Join(containerbroker.Hosts(c.addresses), " ")}, []string{"eth0"})
		text, err := n.text()
		if err != nil {
			t.Fatal(err)
		}
		if now := noteOf(text).Addresses["eth0"]; now != strings.Join(containerbroker.Hosts(c.addresses), " ") {
			t.Errorf("%s: noted %q", what, now)
		}
	}
}
