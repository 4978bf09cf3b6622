package lxd

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	"hostler/containerbroker"
)

func wiredMachine() containerbroker.Machine {
	m := testMachine()
	m.NICs = []containerbroker.NIC{{
		Name: "eth0", Bridge: "br-lan", MAC: "00:16:3E:00:00:01", MTU: 1400, Addresses: []string{"10.20.0.10/24", "fd00::10/64"},
	}}
	m.Disks = []containerbroker.Disk{
		{Name: "fs-www", Source: "/run/hostler/www", Path: "/srv/www"},
		{Name: "vol-data", Source: "/dev/loop3", Device: "/dev/hostler-data", ReadOnly: true},
	}
	return m
}

func attached(t *testing.T, d *Driver, own devices, m containerbroker.Machine, given devices) devices {
	t.Helper()
	result, err := d.attach(own, m, given, true)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// observed returns the running instance with these devices as List returns it.
func observed(own, given devices) containerbroker.Instance {
	return observedAs(api.Running, own, given)
}

func observedAs(status api.StatusCode, own, given devices) containerbroker.Instance {
	expanded := maps.Clone(given)
	if expanded == nil {
		expanded = devices{}
	}
	maps.Copy(expanded, own)
	i := stamped(status)
	i.Devices, i.ExpandedDevices = own, expanded
	return instanceOf(api.InstanceFull{Instance: i})
}

// L4, N18: the devices in the request to LXD.
func TestDevices(t *testing.T) {
	d := New(Options{})
	want := devices{
		"eth0": {
			"type": "nic", "nictype": "bridged", "parent": "br-lan", "name": "eth0", "hwaddr": "00:16:3e:00:00:01", "mtu": "1400",
			"security.mac_filtering": "true", "security.ipv4_filtering": "true",
			"host_name": "hn00163e000001", "ipv4.address": "10.20.0.10", "user.hostler.ipv6": "fd00::10", keyOwner: "hostler",
		},
		"fs-www":   {"type": "disk", "source": "/run/hostler/www", "path": "/srv/www", keyOwner: "hostler"},
		"vol-data": {"type": "unix-block", "source": "/dev/loop3", "path": "/dev/hostler-data", "mode": "0440", keyOwner: "hostler"},
	}
	if diff := cmp.Diff(want, attached(t, d, nil, wiredMachine(), nil)); diff != "" {
		t.Error(diff)
	}
	if changes := d.Diff(wiredMachine(), observed(want, nil)); len(changes) != 0 {
		t.Errorf("they differ from themselves: %+v", changes)
	}
}

// N12: List returns the host's ends of a running instance's interfaces from
// LXD's records. Interfaces that hostler did not make are left out.
func TestPorts(t *testing.T) {
	i := stamped(api.Running)
	i.Devices = attached(t, New(Options{}), devices{"extra0": {"type": "nic", "nictype": "bridged", "parent": "br-lan"}}, wiredMachine(), nil)
	i.Config["volatile.eth0.host_name"], i.Config["volatile.extra0.host_name"], i.Config["volatile.gone0.host_name"] = "veth1", "veth2", "veth3"
	want := map[string]containerbroker.Port{"eth0": {Device: "veth1", Bridge: "br-lan"}}
	if diff := cmp.Diff(want, instanceOf(api.InstanceFull{Instance: i}).Ports); diff != "" {
		t.Error(diff)
	}
	i.Config["volatile.eth0.host_name"] = "" // it has stopped
	if ports := instanceOf(api.InstanceFull{Instance: i}).Ports; ports != nil {
		t.Errorf("stopped it has %v", ports)
	}
}

// LXD's filters also hold a guest to its addresses, as far as they work on
// every host.
func TestFilters(t *testing.T) {
	m := wiredMachine()
	nic := &m.NICs[0]
	for what, c := range map[string]struct {
		addresses []string
		four, six string
		says      string
	}{
		"both":           {nic.Addresses, "10.20.0.10", "fd00::10", "10.20.0.10, fd00::10, mtu"},
		"IPv4 only":      {[]string{"10.20.0.10/24"}, "10.20.0.10", "none", "10.20.0.10, mtu"},
		"IPv6 only":      {[]string{"fd00::10/64"}, "none", "fd00::10", "no IPv4"},
		"several":        {[]string{"10.20.0.10/24", "10.20.0.11/24"}, "", "none", "IPv4 not filtered by the hypervisor"},
		"the same twice": {[]string{"10.20.0.10/24", "10.20.0.10/16"}, "10.20.0.10", "none", ""},
		"unknown":        {nil, "", "", "IPv4 not filtered by the hypervisor"},
		"a router":       {[]string{"10.20.0.10/24"}, "", "none", "IPv4 not filtered by the hypervisor"},
	} {
		nic.Addresses, nic.Router = c.addresses, what == "a router"
		device := attached(t, New(Options{}), nil, m, nil)["eth0"]
		if device[keyIPv4] != c.four || device[keySix] != c.six || device[keyIPv6]+device[keyFilterIPv6] != "" || device[keyFilterMAC] != "true" {
			t.Errorf("%s: the device is %v", what, device)
		}
		if (device[keyIPv4] != "") != (device[keyFilterIPv4] != "") {
			t.Errorf("%s: an address without a filter, which LXD refuses: %v", what, device)
		}
		if text := nicText("eth0", device); !strings.Contains(text, c.says) {
			t.Errorf("%s: a person is told %q", what, text)
		}
	}
}

// An instance of an earlier release continues without replugging. It only loses
// LXD's IPv6 filter; the host's end gets its name when another change replugs
// the interface.
func TestAnOlderInstanceStaysPluggedIn(t *testing.T) {
	d, m := New(Options{}), wiredMachine()
	older := attached(t, d, nil, m, nil)
	delete(older["eth0"], keyHostName)
	delete(older["eth0"], keySix)
	if changes := d.Diff(m, observed(older, nil)); len(changes) != 0 {
		t.Errorf("changes: %+v", changes)
	}
	older["eth0"][keyFilterIPv6], older["eth0"][keyIPv6] = "true", "fd00::10"
	changes := d.Diff(m, observed(older, nil))
	if len(changes) != 1 || changes[0].Field != "nic eth0" || changes[0].Impact != containerbroker.ImpactLive {
		t.Errorf("changes: %+v", changes)
	}
	now := attached(t, d, older, m, nil)
	if now["eth0"][keyHostName]+now["eth0"][keySix]+now["eth0"][keyIPv6]+now["eth0"][keyFilterIPv6] != "" {
		t.Errorf("the device is %v", now["eth0"])
	}
	if changes := d.Diff(m, observed(now, nil)); len(changes) != 0 {
		t.Errorf("changes afterwards: %+v", changes)
	}
	m.NICs[0].MTU = 1300
	if now = attached(t, d, now, m, nil); now["eth0"][keyHostName] != "hn00163e000001" || now["eth0"][keySix] != "fd00::10" {
		t.Errorf("plugged in anew the device is %v", now["eth0"])
	}
	// Stopped, the instance has nothing to be unplugged from. The host's end gets
	// its name before the next start, so that the firewall knows it from the first
	// frame on.
	older = attached(t, d, nil, wiredMachine(), nil)
	delete(older["eth0"], keyHostName)
	delete(older["eth0"], keySix)
	changes = d.Diff(wiredMachine(), observedAs(api.Stopped, older, nil))
	if len(changes) != 1 || changes[0].Field != "nic eth0" || changes[0].Impact != containerbroker.ImpactLive || !strings.Contains(changes[0].From, "host's end") {
		t.Errorf("changes while it is stopped: %+v", changes)
	}
	stopped, err := d.attach(older, wiredMachine(), nil, false)
	if err != nil || stopped["eth0"][keyHostName] != "hn00163e000001" || stopped["eth0"][keySix] != "fd00::10" {
		t.Errorf("stopped, the device becomes %v, %v", stopped["eth0"], err)
	}
	if changes := d.Diff(wiredMachine(), observedAs(api.Stopped, stopped, nil)); len(changes) != 0 {
		t.Errorf("changes afterwards: %+v", changes)
	}
	// The guest learns another address of either family only when it starts.
	for _, address := range []string{"10.20.0.11/24", "fd00::11/64"} {
		m := wiredMachine()
		family := map[bool]int{true: 1, false: 0}[strings.Contains(address, ":")]
		m.NICs[0].Addresses = append([]string{}, m.NICs[0].Addresses...)
		m.NICs[0].Addresses[family] = address
		changes := d.Diff(m, observed(attached(t, d, nil, wiredMachine(), nil), nil))
		if len(changes) != 1 || changes[0].Impact != containerbroker.ImpactRestart {
			t.Errorf("%s: changes: %+v", address, changes)
		}
	}
}

// A change of any of hostler's keys is a difference, and a change of any other
// key is not.
func TestEveryChangedKeyIsADifference(t *testing.T) {
	d := New(Options{})
	m := wiredMachine()
	whole := attached(t, d, nil, m, nil)
	for name, keys := range map[string][]string{"eth0": nicKeys, "fs-www": diskKeys, "vol-data": diskKeys} {
		for _, key := range append([]string{keyOwner}, keys...) {
			for _, value := range []string{"", "altered"} {
				if whole[name][key] == value {
					continue
				}
				own := maps.Clone(whole)
				own[name] = maps.Clone(own[name])
				own[name][key] = value
				if value == "" {
					delete(own[name], key)
				}
				i := observed(own, nil)
				changes := d.Diff(m, i)
				irrelevant := key == "readonly" && name == "vol-data" || key == "mode" && name == "fs-www" || key == keyOwner && value != "" ||
					key == "readonly" && value != "" || // not a boolean: as if absent
					(key == keyHostName || key == keySix) && value == "" || // as made by an earlier release
					(key == keyFilterIPv6 || key == keyIPv6) // these two only matter together
				if (len(changes) == 0) != irrelevant {
					t.Errorf("%s of %s is %q: %+v", key, name, value, changes)
				}
			}
		}
		own := maps.Clone(whole)
		own[name] = maps.Clone(own[name])
		own[name]["limits.max"] = "1MB"
		if changes := d.Diff(m, observed(own, nil)); len(changes) != 0 {
			t.Errorf("a person's limit is a difference: %+v", changes)
		}
	}
}

// Z5: devices of profiles and of the administrator.
func TestDevicesOfOthers(t *testing.T) {
	d := New(Options{})
	given := devices{
		"eth0": {"type": "nic", "network": "lxdbr0", "name": "eth0"},
		"wan0": {"type": "nic", "network": "lxdbr0", "name": "wan0"},
		"root": {"type": "disk", "path": "/", "pool": "default"},
	}
	own := devices{
		"extra0": {"type": "nic", "network": "lxdbr0", "name": "extra0"},
		"fs-www": {"type": "disk", "source": "/theirs", "path": "/srv/www", "limits.read": "1MB"},
		"theirs": {"type": "disk", "source": "/theirs", "path": "/theirs"},
	}
	m := wiredMachine()
	m.Disks = m.Disks[:1]
	fields := func(changes []containerbroker.Change) (names []string) {
		for _, c := range changes {
			names = append(names, c.Field)
		}
		return names
	}
	changes := d.Diff(m, observed(own, given))
	if diff := cmp.Diff([]string{"disk fs-www", "nic eth0", "nic wan0"}, fields(changes)); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(changes[1].From, "of a profile") || changes[2].To != "" || !strings.Contains(changes[0].From, "not made by hostler") {
		t.Errorf("a person is told %+v", changes)
	}
	now := attached(t, d, own, m, given)
	if now["wan0"]["type"] != mask || now["fs-www"]["limits.read"] == "" || now["root"] != nil {
		t.Errorf("devices: %v", now)
	}
	for _, name := range []string{"extra0", "theirs"} {
		if diff := cmp.Diff(own[name], now[name]); diff != "" {
			t.Error(diff)
		}
	}
	if changes := d.Diff(m, observed(now, given)); len(changes) != 0 {
		t.Errorf("it still differs: %+v", changes)
	}
	// Without declared interfaces and disks it keeps the devices from
	// elsewhere.
	bare := testMachine()
	changes = d.Diff(bare, observed(now, given))
	if diff := cmp.Diff([]string{"disk fs-www", "nic eth0", "nic wan0"}, fields(changes)); diff != "" {
		t.Error(diff)
	}
	delete(own, "fs-www") // it was declared, and so became hostler's
	if diff := cmp.Diff(own, attached(t, d, now, bare, nil)); diff != "" {
		t.Error(diff)
	}
	// Names that are taken by another device are refused.
	m.NICs[0].Name = rootName
	if _, err := d.attach(nil, m, nil, true); err == nil {
		t.Error("an interface took the name of the root disk")
	}
}

func FuzzDevices(f *testing.F) {
	f.Add("eth0", "nic", "parent", "br-lan", "ipv4.address", "none")
	f.Add("fs-www", "disk", "source", "/x", "path", "")
	f.Fuzz(func(t *testing.T, name, kind, key1, value1, key2, value2 string) {
		own := devices{name: {"type": kind, key1: value1, key2: value2, keyOwner: "hostler"}, "other": nil}
		d := New(Options{})
		m := wiredMachine()
		d.Diff(m, observed(own, nil))
		result, err := d.attach(own, m, own, true)
		if err != nil {
			t.Fatal(err)
		}
		if changes := d.Diff(m, observed(result, nil)); len(changes) != 0 {
			t.Errorf("it still differs: %+v", changes)
		}
	})
}

// A disk whose name is cut is recognised by its whole name, whether it is
// declared or not.
func TestCutNamesOfDisks(t *testing.T) {
	long := "vol-" + strings.Repeat("a", 63)
	disk := containerbroker.Disk{Name: long, Source: "/dev/loop1", Device: "/dev/data"}
	own := devices{deviceName(long): merge(nil, diskDevice(disk), diskKeys, "hostler")}
	for name, m := range map[string]containerbroker.Machine{
		"declared":   {Disks: []containerbroker.Disk{disk}},
		"undeclared": {KnownDisks: []string{long}},
	} {
		if _, found := diskTexts(m, own); len(found) != 1 || found[long] == "" {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// An interface that LXD refuses leaves a running guest the one that it was to replace.
func TestARefusedInterfaceLeavesTheFormer(t *testing.T) {
	m := testMachine()
	m.NICs = []containerbroker.NIC{{Name: "eth0", Bridge: "br0", MAC: "02:00:00:00:00:01", Addresses: []string{"10.0.0.2/24"}}}
	inst := stamped(api.Running)
	former := nicDevice(m.NICs[0])
	former[keyOwner] = "hostler"
	inst.Devices = map[string]map[string]string{"eth0": former}
	f := newFakeLXD(t)
	f.mux.HandleFunc("GET /1.0/instances/web", func(w http.ResponseWriter, _ *http.Request) { reply(w, "sync", inst) })
	f.mux.HandleFunc("PUT /1.0/instances/web", func(w http.ResponseWriter, r *http.Request) {
		var put api.InstancePut
		if err := json.NewDecoder(r.Body).Decode(&put); err != nil || put.Devices["lan0"] != nil {
			refuse(w, 400, `Invalid devices: Device validation failed for "lan0": Parent device 'br9' does not exist`)
			return
		}
		inst.Devices, inst.Config = put.Devices, put.Config
		reply(w, "async", api.Operation{ID: "1"})
	})
	f.answer("GET /1.0/operations/1/wait", api.Operation{ID: "1", StatusCode: api.Success})
	m.NICs[0] = containerbroker.NIC{Name: "lan0", Bridge: "br9", MAC: "02:00:00:00:00:02", Addresses: []string{"10.0.0.2/24"}}
	err := f.driver(nil).Update(t.Context(), m, []containerbroker.Change{
		{Field: "nic eth0", From: "bridge br0", Impact: containerbroker.ImpactRestart},
		{Field: "nic lan0", To: "bridge br9", Impact: containerbroker.ImpactRestart},
	})
	if err == nil || inst.Devices["eth0"] == nil {
		t.Errorf("%v; the guest has %v", err, inst.Devices)
	}
}
