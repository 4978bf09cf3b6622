package cloudinit

import (
	"encoding/json"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"hostler/internal/fault"
)

// Interface is a network interface with the configuration for the guest.
type Interface struct {
	// Name is the interface's name in the guest. If MAC is empty, the guest
	// finds the interface by this name.
	Name string
	// MAC is the MAC address by which the guest finds the interface. The guest
	// then gives the interface the name Name.
	MAC string
	// MTU is in bytes; 0 means that the guest keeps the link's MTU.
	MTU int
	// Addresses have prefix lengths, e.g. 192.0.2.2/24.
	Addresses []string
	// Static is true if the guest configures Addresses, Gateways and
	// Nameservers itself. Otherwise it asks a DHCP server.
	Static bool
	// AcceptRA is true if a static guest also takes IPv6 addresses and routes
	// from router advertisements.
	AcceptRA              bool
	Gateways, Nameservers []string
}

// interfaceName matches interface names of 2 to 15 characters. LXD accepts no
// shorter names. The characters that netplan or networkd would read as a
// pattern are left out.
var interfaceName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{1,14}$`)

// The smallest MTU of IPv4, and the largest MTU of a Linux link.
const minMTU, maxMTU = 68, 65535

// networkConfig is cloud-init's network configuration, version 2.
type networkConfig struct {
	Version   int                 `json:"version"`
	Ethernets map[string]ethernet `json:"ethernets"`
}

// ethernet is an interface. With networkd, cloud-init up to 22.4 refuses a
// route "to: default", so gateway4 and gateway6 are used. It also ignores a
// match by name, so the name is the key in Ethernets.
type ethernet struct {
	Match       *match       `json:"match,omitempty"`
	SetName     string       `json:"set-name,omitempty"`
	DHCP4       bool         `json:"dhcp4"`
	DHCP6       bool         `json:"dhcp6"`
	AcceptRA    *bool        `json:"accept-ra,omitempty"`
	Addresses   []string     `json:"addresses,omitempty"`
	Gateway4    string       `json:"gateway4,omitempty"`
	Gateway6    string       `json:"gateway6,omitempty"`
	Nameservers *nameservers `json:"nameservers,omitempty"`
	MTU         int          `json:"mtu,omitempty"`
}

type match struct {
	MAC string `json:"macaddress"`
}

type nameservers struct {
	Addresses []string `json:"addresses"`
}

// NetworkConfig returns cloud-init's network-config. It is empty if images do
// the same by default, i.e. without interfaces, or with a single eth0 that asks
// a DHCP server. In each address family only the first interface with a gateway
// gets the default route. The same interfaces give the same bytes. It fails
// with fault.Invalid.
func NetworkConfig(interfaces []Interface) ([]byte, error) {
	if len(interfaces) == 0 {
		return nil, nil
	}
	config := networkConfig{Version: 2, Ethernets: map[string]ethernet{}}
	var routed4, routed6 bool
	for _, i := range interfaces {
		if _, twice := config.Ethernets[i.Name]; twice || !interfaceName.MatchString(i.Name) {
			return nil, fault.New(fault.Invalid, "interface %q: the name is a duplicate or not a valid name (two to 15 letters, digits, -, _ and .)", i.Name)
		}
		e, err := ethernetOf(i)
		if err != nil {
			return nil, err
		}
		if routed4 {
			e.Gateway4 = ""
		}
		if routed6 {
			e.Gateway6 = ""
		}
		routed4, routed6 = routed4 || e.Gateway4 != "", routed6 || e.Gateway6 != ""
		if i.MAC != "" {
			e.Match, e.SetName = &match{i.MAC}, i.Name
		}
		config.Ethernets[i.Name] = e
	}
	if only := interfaces[0]; len(interfaces) == 1 && only.Name == "eth0" && !only.Static {
		return nil, nil
	}
	// JSON is also YAML, with every string quoted.
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot encode cloud-init network-config: %v", err)
	}
	return append(data, '\n'), nil
}

func ethernetOf(i Interface) (ethernet, error) {
	refuse := func(what, value string) (ethernet, error) {
		return ethernet{}, fault.New(fault.Invalid, "interface %q: %q cannot be its %s", i.Name, value, what)
	}
	if i.MTU != 0 && (i.MTU < minMTU || i.MTU > maxMTU) {
		return refuse("MTU", strconv.Itoa(i.MTU))
	}
	e := ethernet{MTU: i.MTU}
	six := false
	for _, text := range i.Addresses {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix.Addr().Is4In6() {
			return refuse("address with prefix length", text)
		}
		six = six || prefix.Addr().Is6()
	}
	for _, text := range i.Gateways {
		gateway, err := netip.ParseAddr(text)
		switch {
		case err != nil || gateway.Zone() != "":
			return refuse("gateway", text)
		case gateway.Is4() && e.Gateway4 == "":
			e.Gateway4 = text
		case gateway.Is6() && e.Gateway6 == "":
			e.Gateway6 = text
		}
	}
	for _, text := range i.Nameservers {
		if server, err := netip.ParseAddr(text); err != nil || server.Zone() != "" {
			return refuse("nameserver", text)
		}
	}
	if !i.Static {
		return ethernet{DHCP4: true, DHCP6: six, MTU: i.MTU}, nil
	}
	if len(i.Addresses) == 0 {
		return ethernet{}, fault.New(fault.Invalid, "interface %q: it is static and has no address", i.Name)
	}
	e.Addresses, e.AcceptRA = i.Addresses, &i.AcceptRA
	if len(i.Nameservers) > 0 {
		e.Nameservers = &nameservers{i.Nameservers}
	}
	return e, nil
}

// DescribeNetwork describes a network-config in one line for the user. It
// returns "other" for a config that it cannot parse.
func DescribeNetwork(config string) string {
	if config == "" {
		return ""
	}
	var c networkConfig
	if json.Unmarshal([]byte(config), &c) != nil {
		return "other"
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.Ethernets)) {
		e := c.Ethernets[name]
		words := append([]string{name}, e.Addresses...)
		if e.DHCP4 || e.DHCP6 {
			words = append(words, "DHCP")
		}
		for _, gateway := range []string{e.Gateway4, e.Gateway6} {
			if gateway != "" {
				words = append(words, "via "+gateway)
			}
		}
		if e.Nameservers != nil {
			words = append(words, "dns "+strings.Join(e.Nameservers.Addresses, " "))
		}
		if e.MTU != 0 {
			words = append(words, "mtu "+strconv.Itoa(e.MTU))
		}
		all = append(all, strings.Join(words, " "))
	}
	return strings.Join(all, "; ")
}

// NetworkOnlyShrinks reports whether want only removes interfaces from have and
// leaves the others as they are. It ignores changes of accept-ra, which wait
// for the next boot. The caller guarantees that want differs from have.
func NetworkOnlyShrinks(have, want string) bool {
	var before, after networkConfig
	if json.Unmarshal([]byte(have), &before) != nil {
		return false
	}
	if want == "" { // by default the image's eth0 asks a DHCP server
		return before.Ethernets["eth0"].DHCP4
	}
	if json.Unmarshal([]byte(want), &after) != nil {
		return false
	}
	for name, e := range after.Ethernets {
		was, ok := before.Ethernets[name]
		was.AcceptRA, e.AcceptRA = nil, nil
		a, _ := json.Marshal(was)
		b, _ := json.Marshal(e)
		if !ok || string(a) != string(b) {
			return false
		}
	}
	return true
}
