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
	// Name is the interface's name in the guest. Without MAC, the guest finds
	// the interface by it.
	Name string
	// MAC is the address by which the guest finds the interface to name it.
	MAC string
	// MTU in bytes; 0: unchanged.
	MTU int
	// Addresses with their prefix lengths.
	Addresses []string
	// Static: the guest configures Addresses, Gateways and Nameservers itself.
	// Otherwise it asks DHCP.
	Static bool
	// AcceptRA: a static guest adds the addresses and routes of routers'
	// advertisements.
	AcceptRA              bool
	Gateways, Nameservers []string
}

// interfaceName matches names without pattern characters of netplan or
// networkd. LXD accepts no shorter names.
var interfaceName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{1,14}$`)

// The smallest MTU of IPv4, and the largest MTU of a Linux link.
const minMTU, maxMTU = 68, 65535

// networkConfig is cloud-init's network configuration, version 2.
type networkConfig struct {
	Version   int                 `json:"version"`
	Ethernets map[string]ethernet `json:"ethernets"`
}

// ethernet is an interface. cloud-init up to 22.4 has two gaps with networkd:
// it refuses a route "to: default", hence gateway4 and gateway6; and it ignores
// a match by name, hence the name as the key.
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
// the same by default: without interfaces, and with a single eth0 that asks
// DHCP. In each address family only the first interface with a gateway gets the
// default route. The same interfaces give the same bytes. It fails with
// fault.Invalid.
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
	// JSON is YAML in which every string is quoted.
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

// DescribeNetwork describes a network-config in a line for the user. A config
// that does not parse reads "other".
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
// changes none of the others, except that they accept routers' advertisements
// from the next boot on, which asks for no restart. The caller guarantees that
// want differs from have.
func NetworkOnlyShrinks(have, want string) bool {
	var before, after networkConfig
	if json.Unmarshal([]byte(have), &before) != nil {
		return false
	}
	if want == "" { // the image's default: eth0 asks DHCP
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
