package bridgepolicy

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func nic(name string, spaces ...string) device {
	return device{Name: name, Kind: kindEthernet, MTU: 1500, Addressed: true, Spaces: spaces}
}

func with(d device, f func(*device)) device { f(&d); return d }

func bridge(name string, spaces ...string) device {
	return with(nic(name, spaces...), func(d *device) { d.Kind = kindBridge })
}

func local(name string, spaces ...string) device {
	return with(bridge(name, spaces...), func(d *device) { d.Local = true })
}

func TestPlan(t *testing.T) {
	bond := with(nic("bond0", "dmz"), func(d *device) { d.Kind = kindBond })
	member := with(nic("eth1", "dmz"), func(d *device) { d.Parent = "bond0" })
	vlan := with(nic("eth0.100", "dmz"), func(d *device) { d.Kind, d.Parent = kindVLAN, "eth0" })
	bare := with(nic("eth0", "dmz"), func(d *device) { d.Addressed = false })
	lo := with(nic("lo", "dmz"), func(d *device) { d.Kind = kindLoopback })
	ovs := with(nic("ovs0", "dmz"), func(d *device) { d.Kind, d.OpenVSwitch = kindOther, true })
	for _, c := range []struct {
		name    string
		need    need
		devices []device
		want    []bridgeFor
		err     string
	}{
		{"N10 named spaces decide", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{nic("eth0", "lan"), nic("eth1", "dmz")}, []bridgeFor{{"eth1", "br-eth1", "dmz"}}, ""},
		{"N10 local needs no bridge of the host's", need{Method: methodLocal}, []device{nic("eth0", "lan")}, nil, ""},
		{"N10 the only space of the host", need{Method: methodProvider}, []device{nic("eth0", "lan")}, []bridgeFor{{"eth0", "br-eth0", "lan"}}, ""},
		{"N10 several spaces", need{Method: methodProvider}, []device{nic("eth0", "lan"), nic("eth1", "dmz")}, nil, "cannot choose a network for the guests: no obvious space, the host is in dmz, lan"},
		{"N10, N12 in no space every device is bridged", need{Method: methodProvider}, []device{nic("eth10"), nic("eth2")}, []bridgeFor{{"eth2", "br-eth2", ""}, {"eth10", "br-eth10", ""}}, ""},
		{"N11 a bridge is there", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{bridge("br0", "dmz"), nic("eth0", "dmz")}, nil, ""},
		{"N11 the hypervisor's bridge does not count", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{local("lxdbr0", "dmz"), nic("eth0", "dmz")}, []bridgeFor{{"eth0", "br-eth0", "dmz"}}, ""},
		{"N11 unless the method is local", need{Spaces: []string{"dmz"}, Method: methodLocal}, []device{local("virbr0", "dmz"), nic("eth0", "dmz")}, nil, ""},
		{"N11 a fan bridge counts for fan", need{Spaces: []string{"dmz"}, Method: methodFan}, []device{bridge("fan-252", "dmz"), nic("eth0", "dmz")}, nil, ""},
		{"N11 and for nothing else", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{bridge("fan-252", "dmz"), nic("eth0", "dmz")}, []bridgeFor{{"eth0", "br-eth0", "dmz"}}, ""},
		{"N12 one device, eth2 before eth10", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{nic("eth10", "dmz"), nic("eth2", "dmz")}, []bridgeFor{{"eth2", "br-eth2", "dmz"}}, ""},
		{"N12 one device for two spaces", need{Spaces: []string{"dmz", "lan"}, Method: methodProvider}, []device{nic("eth0", "dmz", "lan")}, []bridgeFor{{"eth0", "br-eth0", "dmz"}}, ""},
		{"N13 the bond, not its member", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{member, bond}, []bridgeFor{{"bond0", "br-bond0", "dmz"}}, ""},
		{"N13 a vlan on ethernet", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{nic("eth0", "lan"), vlan}, []bridgeFor{{"eth0.100", "br-eth0-100", "dmz"}}, ""},
		{"N13 a vlan on a bond", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{with(bond, func(d *device) { d.Spaces = nil }), with(vlan, func(d *device) { d.Name, d.Parent = "bond0.5", "bond0" })}, []bridgeFor{{"bond0.5", "br-bond0-5", "dmz"}}, ""},
		{"N13 no vlan on a bridge", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{bridge("br0", "lan"), with(vlan, func(d *device) { d.Parent = "br0" })}, nil, "cannot bridge: the host has no device to bridge for dmz"},
		{"N15 devices without addresses and loopback", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{bare, lo}, nil, "cannot bridge: the host has no device to bridge for dmz"},
		{"N15 an address in no known network", need{Method: methodProvider}, []device{nic("eth0", unknown)}, []bridgeFor{{"eth0", "br-eth0", ""}}, ""},
		{"N16 the missing spaces, and nothing is made", need{Spaces: []string{"lan", "b", "a"}, Method: methodProvider}, []device{nic("eth0", "lan")}, nil, "cannot bridge: the host has no device to bridge for a, b"},
		{"N18 a port of a virtual switch counts for provider", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{ovs, nic("eth0", "dmz")}, nil, ""},
	} {
		got, err := planBridges(c.need, c.devices)
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
	jumbo := with(bridge("br-eth2", "dmz"), func(d *device) { d.MTU = 9000 })
	fan := with(bridge("fan-252", "dmz"), func(d *device) { d.MTU = 1500 })
	vxlan := device{Name: "ftun0", Kind: kindVXLAN, Parent: "fan-252", MTU: 1450}
	for _, c := range []struct {
		name    string
		need    need
		devices []device
		byHand  bool
		want    []guestNIC
		err     string
	}{
		{"N18 one per bridge, naturally", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{bridge("br-eth10", "dmz"), jumbo}, false, []guestNIC{{"eth0", "br-eth2", 9000, "dmz", false}, {"eth1", "br-eth10", 1500, "dmz", false}}, ""},
		{"N18 local takes the hypervisor's", need{Method: methodLocal, LocalBridge: "lxdbr0"}, nil, false, []guestNIC{{"eth0", "lxdbr0", 0, defaultSpace, true}}, ""},
		{"N18 fan takes the overlay's MTU", need{Spaces: []string{"dmz"}, Method: methodFan}, []device{fan, vxlan}, false, []guestNIC{{"eth0", "fan-252", 1450, "dmz", false}}, ""},
		{"N19 by hand", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{jumbo}, true, []guestNIC{{"eth0", "br-eth2", 9000, "dmz", true}}, ""},
		{"no bridge", need{Spaces: []string{"dmz"}, Method: methodProvider}, []device{nic("eth0", "dmz")}, false, nil, "cannot give the guest a network: the host has no bridge for dmz"},
	} {
		got, err := planNICs(c.need, c.devices, c.byHand)
		if d := cmp.Diff(c.want, got); d != "" || c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("%s: %v %s", c.name, err, d)
		}
	}
}

func TestProperties(t *testing.T) {
	spaces := []string{"a", "b", unknown}
	rapid.Check(t, func(t *rapid.T) {
		var devices []device
		for i := range rapid.IntRange(0, 8).Draw(t, "devices") {
			d := device{
				Name:      fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"eth", "enp0s31f6verylong", "bond0.x"}).Draw(t, "name"), i),
				Kind:      rapid.SampledFrom([]kind{kindEthernet, kindBond, kindVLAN, kindBridge, kindOther}).Draw(t, "kind"),
				Addressed: rapid.Bool().Draw(t, "addressed"),
				Spaces:    rapid.SliceOfNDistinct(rapid.SampledFrom(spaces), 0, 2, rapid.ID[string]).Draw(t, "spaces"),
			}
			if i > 0 && rapid.Bool().Draw(t, "parented") {
				d.Parent = devices[rapid.IntRange(0, i-1).Draw(t, "parent")].Name
			}
			devices = append(devices, d)
		}
		need := need{Method: rapid.SampledFrom([]method{methodLocal, methodProvider, methodFan}).Draw(t, "method"), Spaces: rapid.SliceOfDistinct(rapid.SampledFrom(spaces[:2]), rapid.ID[string]).Draw(t, "need")}
		plan, err := planBridges(need, devices)
		shuffled := rapid.Permutation(devices).Draw(t, "shuffled")
		if again, errAgain := planBridges(need, shuffled); !slices.Equal(plan, again) || (err == nil) != (errAgain == nil) {
			t.Fatalf("%v, in another order of the devices %v", plan, again)
		}
		if err != nil {
			return
		}
		names := map[string]bool{}
		perSpace := map[string]int{}
		for _, b := range plan {
			i := slices.IndexFunc(devices, func(d device) bool { return d.Name == b.Device })
			if d := devices[i]; d.Kind != kindVLAN && d.Parent != "" {
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
