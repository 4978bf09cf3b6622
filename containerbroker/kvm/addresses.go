package kvm

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"
)

// pidOf returns the process id of a running guest, read from QEMU's pid file.
// If the file cannot be read, it returns libvirt's domain id, which also
// changes with every start of the guest.
func (d *Driver) pidOf(dom libvirt.Domain) int64 {
	text, err := os.ReadFile(d.pidFile(dom))
	if err == nil {
		if pid, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && pid > 0 {
			return pid
		}
	}
	return int64(dom.ID)
}

// pidFile returns the path of the file that QEMU writes when a guest starts.
func (d *Driver) pidFile(dom libvirt.Domain) string {
	return filepath.Join(d.opts.RuntimeDir, filepath.Base(dom.Name)+".pid")
}

func global(ip netip.Addr) bool {
	return ip.Zone() == "" && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsUnspecified() && !ip.IsMulticast()
}

// seen returns the guest's addresses as seen from the host. They come from the
// DHCP leases of libvirt's networks and from the host's neighbours that have
// one of the guest's MAC addresses. It asks libvirt for both, because a
// provisioner with its own systemd unit may have no access to the host's files
// and network. If the host's ARP table can be read, seen also reads the table,
// because libvirt 9 takes the end of a netlink answer of kernels from 6.10 on
// for an error.
func (d *Driver) seen(c *conn, dom libvirt.Domain, def definition) []string {
	var found []netip.Addr
	keep := func(address string) {
		if ip, err := netip.ParseAddr(address); err == nil && global(ip) {
			found = append(found, ip.Unmap())
		}
	}
	for _, source := range []libvirt.DomainInterfaceAddressesSource{libvirt.DomainInterfaceAddressesSrcLease, libvirt.DomainInterfaceAddressesSrcArp} {
		interfaces, err := value(c, "look for the addresses of "+dom.Name, func(l *libvirt.Libvirt) ([]libvirt.DomainInterface, error) {
			return l.DomainInterfaceAddresses(dom, uint32(source), 0)
		})
		if err != nil {
			continue // the other source may have answers
		}
		for _, i := range interfaces {
			for _, a := range i.Addrs {
				keep(a.Addr)
			}
		}
	}
	table, err := os.ReadFile(filepath.Join(d.opts.Proc, "net", "arp"))
	if err != nil {
		return sorted(found)
	}
	for line := range strings.Lines(string(table)) {
		// The fields are IP address, type, flags, MAC address, mask and device.
		// Flags of 0x0 mean that the neighbour has not answered.
		if f := strings.Fields(line); len(f) == 6 && f[2] != "0x0" && hasMAC(def, f[3]) {
			keep(f[0])
		}
	}
	return sorted(found)
}

func hasMAC(def definition, mac string) bool {
	return slices.ContainsFunc(def.domain.Devices.Interfaces, func(n libvirtxml.DomainInterface) bool {
		return n.MAC != nil && strings.EqualFold(n.MAC.Address, mac)
	})
}

// sorted returns the addresses as sorted text without duplicates, IPv4 first.
func sorted(found []netip.Addr) []string {
	slices.SortFunc(found, netip.Addr.Compare)
	var texts []string
	for _, ip := range slices.Compact(found) {
		texts = append(texts, ip.String())
	}
	return texts
}
