package bridgepolicy

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func nic(name string, spaces ...string) Device {
	return Device{Name: name, Kind: Ethernet, MTU: 1500, Addressed: true, Spaces: spaces}
}

func with(d Device, f func(*Device)) Device { f(&d); return d }

func bridge(name string, spaces ...string) Device {
	return with(nic(name, spaces...), func(d *Device) { d.Kind = Bridge })
}

func local(name string, spaces ...string) Device {
	return with(bridge(name, spaces...), func(d *Device) { d.Local = true })
}

func TestPlan(t *testing.T) {
	bond := with(nic("bond0", "dmz"), func(d *Device) { d.Kind = Bond })
	member := with(nic("eth1", "dmz"), func(d *Device) { d.Parent = "bond0" })
	vlan := with(nic("eth0.100", "dmz"), func(d *Device) { d.Kind, d.Parent = VLAN, "eth0" })
	bare := with(nic("eth0", "dmz"), func(d *Device) { d.Addressed = false })
	lo := with(nic("lo", "dmz"), func(d *Device) { d.Kind = Loopback })
	ovs := with(nic("ovs0", "dmz"), func(d *Device) { d.Kind, d.OpenVSwitch = Other, true })
	for _, c := range []struct {
		name    string
		need    Need
		devices []Device
		want    []BridgeFor
		err     string
	}{
		{"N10 named spaces decide", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{nic("eth0", "lan"), nic("eth1", "dmz")}, []BridgeFor{{"eth1", "br-eth1", "dmz"}}, ""},
		{"N10 local needs no bridge of the host's", Need{Method: Local}, []Device{nic("eth0", "lan")}, nil, ""},
		{"N10 the only space of the host", Need{Method: Provider}, []Device{nic("eth0", "lan")}, []BridgeFor{{"eth0", "br-eth0", "lan"}}, ""},
		{"N10 several spaces", Need{Method: Provider}, []Device{nic("eth0", "lan"), nic("eth1", "dmz")}, nil, "cannot choose a network for the guests: no obvious space, the host is in dmz, lan"},
		{"N10, N12 in no space every device is bridged", Need{Method: Provider}, []Device{nic("eth10"), nic("eth2")}, []BridgeFor{{"eth2", "br-eth2", ""}, {"eth10", "br-eth10", ""}}, ""},
		{"N11 a bridge is there", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{bridge("br0", "dmz"), nic("eth0", "dmz")}, nil, ""},
		{"N11 the hypervisor's bridge does not count", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{local("lxdbr0", "dmz"), nic("eth0", "dmz")}, []BridgeFor{{"eth0", "br-eth0", "dmz"}}, ""},
		{"N11 unless the method is local", Need{Spaces: []string{"dmz"}, Method: Local}, []Device{local("virbr0", "dmz"), nic("eth0", "dmz")}, nil, ""},
		{"N11 a fan bridge counts for fan", Need{Spaces: []string{"dmz"}, Method: Fan}, []Device{bridge("fan-252", "dmz"), nic("eth0", "dmz")}, nil, ""},
		{"N11 and for nothing else", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{bridge("fan-252", "dmz"), nic("eth0", "dmz")}, []BridgeFor{{"eth0", "br-eth0", "dmz"}}, ""},
		{"N12 one device, eth2 before eth10", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{nic("eth10", "dmz"), nic("eth2", "dmz")}, []BridgeFor{{"eth2", "br-eth2", "dmz"}}, ""},
		{"N12 one device for two spaces", Need{Spaces: []string{"dmz", "lan"}, Method: Provider}, []Device{nic("eth0", "dmz", "lan")}, []BridgeFor{{"eth0", "br-eth0", "dmz"}}, ""},
		{"N13 the bond, not its member", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{member, bond}, []BridgeFor{{"bond0", "br-bond0", "dmz"}}, ""},
		{"N13 a vlan on ethernet", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{nic("eth0", "lan"), vlan}, []BridgeFor{{"eth0.100", "br-eth0-100", "dmz"}}, ""},
		{"N13 a vlan on a bond", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{with(bond, func(d *Device) { d.Spaces = nil }), with(vlan, func(d *Device) { d.Name, d.Parent = "bond0.5", "bond0" })}, []BridgeFor{{"bond0.5", "br-bond0-5", "dmz"}}, ""},
		{"N13 no vlan on a bridge", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{bridge("br0", "lan"), with(vlan, func(d *Device) { d.Parent = "br0" })}, nil, "cannot bridge: the host has no device to bridge for dmz"},
		{"N15 devices without addresses and loopback", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{bare, lo}, nil, "cannot bridge: the host has no device to bridge for dmz"},
		{"N15 an address in no known network", Need{Method: Provider}, []Device{nic("eth0", unknown)}, []BridgeFor{{"eth0", "br-eth0", ""}}, ""},
		{"N16 the missing spaces, and nothing is made", Need{Spaces: []string{"lan", "b", "a"}, Method: Provider}, []Device{nic("eth0", "lan")}, nil, "cannot bridge: the host has no device to bridge for a, b"},
		{"N18 a port of a virtual switch counts for provider", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{ovs, nic("eth0", "dmz")}, nil, ""},
	} {
		got, err := Plan(c.need, c.devices)
		if d := cmp.Diff(c.want, got); d != "" || c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("%s: %v %s", c.name, err, d)
		}
	}
}

// N17.
func TestName(t *testing.T) {
	for device, want := range map[string]string{
		"eth0":            "br-eth0",
		"eth0.100":        "br-eth0-100",
		"twelve-chars":    "br-twelve-chars",
		"thirteenchars":   "b-thirteenchars",
		"enx00112233445":  "b-x00112233445",
		"enx001122334455": "b-x001122334455",
		"fourteenchars1":  "b-5590a4-chars1",
		"wlx001122334455": "b-bb5432-334455",
	} {
		got := name(device)
		if len(got) > 15 || want != got {
			t.Errorf("%s: %s, want %s", device, got, want)
		}
	}
}

// N18, N19.
func TestGuestNICs(t *testing.T) {
	jumbo := with(bridge("br-eth2", "dmz"), func(d *Device) { d.MTU = 9000 })
	fan := with(bridge("fan-252", "dmz"), func(d *Device) { d.MTU = 1500 })
	vxlan := Device{Name: "ftun0", Kind: VXLAN, Parent: "fan-252", MTU: 1450}
	for _, c := range []struct {
		name    string
		need    Need
		devices []Device
		byHand  bool
		want    []NIC
		err     string
	}{
		{"N18 one per bridge, naturally", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{bridge("br-eth10", "dmz"), jumbo}, false, []NIC{{"eth0", "br-eth2", 9000, "dmz", false}, {"eth1", "br-eth10", 1500, "dmz", false}}, ""},
		{"N18 local takes the hypervisor's", Need{Method: Local, LocalBridge: "lxdbr0"}, nil, false, []NIC{{"eth0", "lxdbr0", 0, defaultSpace, true}}, ""},
		{"N18 fan takes the overlay's MTU", Need{Spaces: []string{"dmz"}, Method: Fan}, []Device{fan, vxlan}, false, []NIC{{"eth0", "fan-252", 1450, "dmz", false}}, ""},
		{"N19 by hand", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{jumbo}, true, []NIC{{"eth0", "br-eth2", 9000, "dmz", true}}, ""},
		{"no bridge", Need{Spaces: []string{"dmz"}, Method: Provider}, []Device{nic("eth0", "dmz")}, false, nil, "cannot give the guest a network: the host has no bridge for dmz"},
	} {
		got, err := GuestNICs(c.need, c.devices, c.byHand)
		if d := cmp.Diff(c.want, got); d != "" || c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("%s: %v %s", c.name, err, d)
		}
	}
}

func TestProperties(t *testing.T) {
	spaces := []string{"a", "b", unknown}
	rapid.Check(t, func(t *rapid.T) {
		var devices []Device
		for i := range rapid.IntRange(0, 8).Draw(t, "devices") {
			d := Device{
				Name:      fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"eth", "enp0s31f6verylong", "bond0.x"}).Draw(t, "name"), i),
				Kind:      rapid.SampledFrom([]Kind{Ethernet, Bond, VLAN, Bridge, Other}).Draw(t, "kind"),
				Addressed: rapid.Bool().Draw(t, "addressed"),
				Spaces:    rapid.SliceOfNDistinct(rapid.SampledFrom(spaces), 0, 2, rapid.ID[string]).Draw(t, "spaces"),
			}
			if i > 0 && rapid.Bool().Draw(t, "parented") {
				d.Parent = devices[rapid.IntRange(0, i-1).Draw(t, "parent")].Name
			}
			devices = append(devices, d)
		}
		need := Need{Method: rapid.SampledFrom([]Method{Local, Provider, Fan}).Draw(t, "method"), Spaces: rapid.SliceOfDistinct(rapid.SampledFrom(spaces[:2]), rapid.ID[string]).Draw(t, "need")}
		plan, err := Plan(need, devices)
		shuffled := rapid.Permutation(devices).Draw(t, "shuffled")
		if again, errAgain := Plan(need, shuffled); !slices.Equal(plan, again) || (err == nil) != (errAgain == nil) {
			t.Fatalf("%v, in another order of the devices %v", plan, again)
		}
		if err != nil {
			return
		}
		names := map[string]bool{}
		perSpace := map[string]int{}
		for _, b := range plan {
			i := slices.IndexFunc(devices, func(d Device) bool { return d.Name == b.Device })
			if d := devices[i]; d.Kind != VLAN && d.Parent != "" {
				t.Fatalf("%s belongs to %s", d.Name, d.Parent)
			}
			if len(b.Bridge) > 15 || names[b.Bridge] {
				t.Fatalf("bad bridge name %s", b.Bridge)
			}
			names[b.Bridge] = true
			if perSpace[b.Space]++; b.Space != unknown && perSpace[b.Space] > 1 {
				t.Fatalf("more devices than needed: %v", plan)
			}
		}
	})
}
