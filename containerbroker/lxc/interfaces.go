package lxc

import (
	"slices"
	"strconv"
	"strings"

	"hostler/containerbroker"
)

// iface is a network interface of a config. Index is the number in its keys.
type iface struct {
	index                              int
	kind, link, name, hwaddr, pair, up string
	mtu                                int
}

const keyNet = "lxc.net."

// interfaces returns the interfaces in the order of their numbers.
func (c config) interfaces() []iface {
	byIndex := map[int]*iface{}
	for _, line := range c.lines {
		k, v, ok := setting(line)
		rest, isNet := strings.CutPrefix(k, keyNet)
		number, key, dotted := strings.Cut(rest, ".")
		index, err := strconv.Atoi(number)
		if !ok || !isNet || !dotted || err != nil || index < 0 {
			continue
		}
		i := byIndex[index]
		if i == nil {
			i = &iface{index: index}
			byIndex[index] = i
		}
		switch key {
		case "type":
			i.kind = v
		case "link":
			i.link = v
		case "name":
			i.name = v
		case "hwaddr":
			i.hwaddr = strings.ToLower(v)
		case "veth.pair":
			i.pair = v
		case "flags":
			i.up = v
		case "mtu":
			i.mtu, _ = strconv.Atoi(v)
		}
	}
	var all []iface
	for _, i := range byIndex {
		if i.name == "" && i.kind == "veth" {
			i.name = "eth" + strconv.Itoa(i.index) // the kernel's choice
		}
		all = append(all, *i)
	}
	slices.SortFunc(all, func(a, b iface) int { return a.index - b.index })
	return all
}

// dropInterface removes all settings of an interface.
func (c *config) dropInterface(index int) {
	prefix := keyNet + strconv.Itoa(index) + "."
	c.removeIf(func(k, _ string) bool { return strings.HasPrefix(k, prefix) })
}

func putInterface(c *config, nic containerbroker.NIC) {
	index, want := 0, ifaceOf(nic)
	for _, i := range c.interfaces() {
		if i.name == nic.Name {
			want.index = i.index
			if i == want {
				return
			}
			c.dropInterface(i.index)
		}
	}
	for slices.ContainsFunc(c.interfaces(), func(i iface) bool { return i.index == index }) {
		index++
	}
	prefix := keyNet + strconv.Itoa(index) + "."
	put := func(key, value string) { c.lines = append(c.lines, prefix+key+" = "+value) }
	put("type", want.kind)
	put("link", want.link)
	put("flags", want.up)
	put("name", want.name)
	put("hwaddr", want.hwaddr)
	put("veth.pair", want.pair)
	if want.mtu != 0 {
		put("mtu", strconv.Itoa(want.mtu))
	}
}

func ifaceOf(nic containerbroker.NIC) iface {
	return iface{
		kind: "veth", link: nic.Bridge, up: "up", name: nic.Name, hwaddr: strings.ToLower(nic.MAC),
		pair: containerbroker.PortOf(nic.MAC), mtu: nic.MTU,
	}
}

// findNIC returns an interface of a config, or false.
func (c config) findNIC(name string) (iface, bool) {
	all := c.interfaces()
	at := slices.IndexFunc(all, func(i iface) bool { return i.name == name })
	if at < 0 {
		return iface{}, false
	}
	return all[at], true
}

// sharesNetwork reports whether the guest is in the network namespace of the host or
// of another container. An interface of type none means the host's.
func (c config) sharesNetwork() bool {
	has := func(key string) bool { return slices.Contains(strings.Fields(c.get(key)), "net") }
	none := slices.ContainsFunc(c.interfaces(), func(i iface) bool { return i.kind == "none" })
	return none || c.get("lxc.namespace.share.net") != "" || has("lxc.namespace.keep") || c.get("lxc.namespace.clone") != "" && !has("lxc.namespace.clone")
}
