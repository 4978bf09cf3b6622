package cloudinit

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hostler/internal/fault"
)

func staticEth0() Interface {
	return Interface{
		Name: "eth0", MTU: 1400, Addresses: []string{"10.20.0.10/24", "fd00::10/64"}, Static: true,
		Gateways: []string{"10.20.0.1", "fd00::1"}, Nameservers: []string{"10.20.0.1"},
	}
}

// N2: every interface is configured by name, with the host as its gateway.
func TestNetworkConfig(t *testing.T) {
	second := Interface{Name: "eth1", Addresses: []string{"10.30.0.10/24"}, Static: true, AcceptRA: true, Gateways: []string{"10.30.0.1"}}
	asking := Interface{Name: "eth2", Addresses: []string{"10.40.0.10/24", "fd01::10/64"}, Gateways: []string{"10.40.0.1"}}
	data, err := NetworkConfig([]Interface{staticEth0(), second, asking})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"version": int(2), "ethernets": map[string]any{
		"eth0": map[string]any{
			"dhcp4": false, "dhcp6": false, "accept-ra": false, "mtu": int(1400),
			"addresses": []any{"10.20.0.10/24", "fd00::10/64"}, "gateway4": "10.20.0.1", "gateway6": "fd00::1",
			"nameservers": map[string]any{"addresses": []any{"10.20.0.1"}},
		},
		"eth1": map[string]any{"dhcp4": false, "dhcp6": false, "accept-ra": true, "addresses": []any{"10.30.0.10/24"}},
		"eth2": map[string]any{"dhcp4": true, "dhcp6": true},
	}}
	if diff := cmp.Diff(want, decode(t, string(data))); diff != "" {
		t.Error(diff)
	}
	const told = "eth0 10.20.0.10/24 fd00::10/64 via 10.20.0.1 via fd00::1 dns 10.20.0.1 mtu 1400; eth1 10.30.0.10/24; eth2 DHCP"
	if got := DescribeNetwork(string(data)); got != told {
		t.Errorf("described as %q", got)
	}
	if got := DescribeNetwork("network: a person's own"); got != "other" {
		t.Errorf("described as %q", got)
	}
}

func TestNetworkConfigIsLeftToTheImage(t *testing.T) {
	for what, interfaces := range map[string][]Interface{
		"none": nil, "eth0 asks DHCP": {{Name: "eth0", MTU: 1400, Addresses: []string{"10.20.0.10/24"}, Gateways: []string{"10.20.0.1"}}},
	} {
		if data, err := NetworkConfig(interfaces); err != nil || len(data) != 0 {
			t.Errorf("%s: %q, %v", what, data, err)
		}
	}
	if data, err := NetworkConfig([]Interface{{Name: "lan0"}}); err != nil || len(data) == 0 {
		t.Errorf("no image knows lan0: %q, %v", data, err)
	}
}

func TestNetworkConfigRefuses(t *testing.T) {
	for what, change := range map[string]func(*Interface){
		"pattern":           func(i *Interface) { i.Name = "e*" },
		"long name":         func(i *Interface) { i.Name = "abcdefghijklmnop" },
		"no name":           func(i *Interface) { i.Name = "" },
		"address":           func(i *Interface) { i.Addresses[0] = "10.20.0.10" },
		"mapped address":    func(i *Interface) { i.Addresses[0] = "::ffff:10.20.0.10/120" },
		"no address":        func(i *Interface) { i.Addresses = nil },
		"gateway":           func(i *Interface) { i.Gateways[0] = "10.20.0.1/24" },
		"gateway's zone":    func(i *Interface) { i.Gateways[0] = "fe80::1%eth0" },
		"nameserver":        func(i *Interface) { i.Nameservers[0] = "dns.example" },
		"small MTU":         func(i *Interface) { i.MTU = 67 },
		"large MTU":         func(i *Interface) { i.MTU = 65536 },
		"negative MTU":      func(i *Interface) { i.MTU = -1 },
		"text in a gateway": func(i *Interface) { i.Gateways[0] = "10.20.0.1\nruncmd: [reboot]" },
	} {
		i := staticEth0()
		change(&i)
		if data, err := NetworkConfig([]Interface{i}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %q, %v", what, data, err)
		}
	}
	if _, err := NetworkConfig([]Interface{staticEth0(), staticEth0()}); !fault.Is(err, fault.Invalid) {
		t.Errorf("twice the same: %v", err)
	}
}

func TestNetworkOnlyShrinks(t *testing.T) {
	config := func(interfaces ...Interface) string {
		t.Helper()
		data, err := NetworkConfig(interfaces)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	one := staticEth0()
	asking, second := Interface{Name: "eth0"}, Interface{Name: "eth1"}
	heeding := staticEth0()
	heeding.AcceptRA = true
	moved := staticEth0()
	moved.Addresses = []string{"10.20.0.11/24"}
	for what, c := range map[string]struct {
		have, want string
		shrinks    bool
	}{
		"second comes":           {config(one), config(one, second), false},
		"second goes":            {config(one, second), config(one), true},
		"second of two asking":   {config(asking, second), config(asking), true},
		"second beside none":     {"", config(asking, second), false},
		"address moves":          {config(one), config(moved), false},
		"static to asking":       {config(one), config(asking), false},
		"the user's own":         {"version: 1", config(one), false},
		"the user's own goes":    {"version: 1", "", false},
		"second goes, one moves": {config(one, second), config(moved), false},
		"advertisements count":   {config(one), config(heeding), true},
	} {
		if got := NetworkOnlyShrinks(c.have, c.want); got != c.shrinks {
			t.Errorf("%s: %v", what, got)
		}
	}
}
