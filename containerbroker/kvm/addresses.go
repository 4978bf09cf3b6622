package kvm

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
)

// lesson is what a guest's agent told of its addresses, and in which life of
// the guest: libvirt numbers them.
type lesson struct {
	life      int32
	addresses []string
	at        time.Time
}

// askAgain is how old what the agent told may get.
const askAgain = 10 * time.Minute

// pidOf returns the process of a running guest: from the file that QEMU wrote,
// or, where that cannot be read, the number that libvirt gives each life of a
// guest, which serves to tell one from the next.
func (d *Driver) pidOf(dom libvirt.Domain) int64 {
	text, err := os.ReadFile(filepath.Join(d.opts.RuntimeDir, filepath.Base(dom.Name)+".pid"))
	if err == nil {
		if pid, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && pid > 0 {
			return pid
		}
	}
	return int64(dom.ID)
}

// addresses returns what is known of a running guest's addresses without
// asking it: its agent's last word, the leases of libvirt's networks, and the
// host's own table of neighbours.
func (d *Driver) addresses(c *conn, dom libvirt.Domain, def definition) []string {
	d.mu.Lock()
	known, ok := d.learned[dom.Name]
	d.mu.Unlock()
	if ok && known.life == dom.ID && time.Since(known.at) < askAgain {
		return known.addresses
	}
	if found := d.learn(c, dom); len(found) > 0 {
		return found
	}
	return d.seen(def)
}

// learn asks the guest's agent, where it answers.
func (d *Driver) learn(c *conn, dom libvirt.Domain) []string {
	live, err := readDefinition(c, dom, 0)
	if err != nil || !agentConnected(live) {
		return nil
	}
	var interfaces []struct {
		Name      string `json:"name"`
		Addresses []struct {
			Address string `json:"ip-address"`
		} `json:"ip-addresses"`
	}
	if err := ask(c, dom, "guest-network-get-interfaces", nil, &interfaces); err != nil {
		return nil
	}
	var found []netip.Addr
	for _, i := range interfaces {
		for _, a := range i.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && global(ip) {
				found = append(found, ip.Unmap())
			}
		}
	}
	told := sorted(found)
	if len(told) > 0 {
		d.mu.Lock()
		d.learned[dom.Name] = lesson{life: dom.ID, addresses: told, at: time.Now()}
		d.mu.Unlock()
	}
	return told
}

func global(ip netip.Addr) bool {
	return ip.Zone() == "" && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsUnspecified() && !ip.IsMulticast()
}

// seen reads the leases and the neighbours of the guest's MAC addresses.
func (d *Driver) seen(def definition) []string {
	macs := map[string]bool{}
	for _, n := range def.domain.Devices.Interfaces {
		if n.MAC != nil {
			macs[strings.ToLower(n.MAC.Address)] = true
		}
	}
	var found []netip.Addr
	keep := func(mac, address string) {
		if ip, err := netip.ParseAddr(address); err == nil && macs[strings.ToLower(mac)] && global(ip) {
			found = append(found, ip.Unmap())
		}
	}
	files, _ := filepath.Glob(filepath.Join(d.opts.Leases, "*.status"))
	for _, file := range files {
		var leases []struct {
			MAC     string `json:"mac-address"`
			Address string `json:"ip-address"`
			Expires int64  `json:"expiry-time"`
		}
		if data, err := os.ReadFile(file); err != nil || json.Unmarshal(data, &leases) != nil {
			continue
		}
		for _, l := range leases {
			if l.Expires == 0 || l.Expires > time.Now().Unix() {
				keep(l.MAC, l.Address)
			}
		}
	}
	if table, err := os.ReadFile(filepath.Join(d.opts.Proc, "net", "arp")); err == nil {
		for line := range strings.Lines(string(table)) {
			// IP address, type, flags, MAC address, mask, device; flag 2 says that
			// the neighbour answered.
			if f := strings.Fields(line); len(f) == 6 && f[2] != "0x0" {
				keep(f[3], f[0])
			}
		}
	}
	return sorted(found)
}

// sorted writes addresses, IPv4 first.
func sorted(found []netip.Addr) []string {
	slices.SortFunc(found, netip.Addr.Compare)
	var texts []string
	for _, ip := range slices.Compact(found) {
		texts = append(texts, ip.String())
	}
	return texts
}
