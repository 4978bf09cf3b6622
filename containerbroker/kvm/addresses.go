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

// pidOf returns the process of a running guest: from the file that QEMU wrote,
// or, where that cannot be read, the number that libvirt gives each life of a
// guest, which serves to tell one from the next.
func (d *Driver) pidOf(dom libvirt.Domain) int64 {
	text, err := os.ReadFile(d.pidFile(dom))
	if err == nil {
		if pid, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && pid > 0 {
			return pid
		}
	}
	return int64(dom.ID)
}

// pidFile is what QEMU writes when a guest starts.
func (d *Driver) pidFile(dom libvirt.Domain) string {
	return filepath.Join(d.opts.RuntimeDir, filepath.Base(dom.Name)+".pid")
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
