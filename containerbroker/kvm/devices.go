package kvm

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"

	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
)

// defaultNIC is the name, inside the guest, of the interface on libvirt's own
// network.
const defaultNIC = "eth0"

// wantedNICs returns the interfaces of a machine. A machine without declared
// interfaces gets one interface on libvirt's own network.
func wantedNICs(m containerbroker.Machine, uuid, network string) []libvirtxml.DomainInterface {
	model := &libvirtxml.DomainInterfaceModel{Type: "virtio"}
	if len(m.NICs) == 0 {
		return []libvirtxml.DomainInterface{{
			MAC:    &libvirtxml.DomainInterfaceMAC{Address: macOf(uuid, defaultNIC)},
			Source: &libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: network}},
			Model:  model, Alias: &libvirtxml.DomainAlias{Name: aliasDefault + defaultNIC},
		}}
	}
	var all []libvirtxml.DomainInterface
	for _, n := range m.NICs {
		one := libvirtxml.DomainInterface{
			MAC:    &libvirtxml.DomainInterfaceMAC{Address: nicMAC(n, uuid)},
			Source: &libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: n.Bridge}},
			Model:  model, Alias: &libvirtxml.DomainAlias{Name: aliasNIC + aliasName.Replace(n.Name)},
		}
		if n.MAC != "" {
			one.Target = &libvirtxml.DomainInterfaceTarget{Dev: containerbroker.PortOf(n.MAC)}
		}
		if n.MTU != 0 {
			one.MTU = &libvirtxml.DomainInterfaceMTU{Size: uint(n.MTU)}
		}
		all = append(all, one)
	}
	return all
}

func nicMAC(n containerbroker.NIC, uuid string) string {
	if n.MAC == "" {
		return macOf(uuid, n.Name)
	}
	return strings.ToLower(n.MAC)
}

// onDefault describes the interface on libvirt's own network.
const onDefault = "libvirt's own network"

// nicTexts describes the hardware of a machine's interfaces, by name, e.g.
// "bridge br0, mtu 9000". Their configuration in the guest is in its
// network-config.
func nicTexts(m containerbroker.Machine) map[string]string {
	if len(m.NICs) == 0 {
		return map[string]string{defaultNIC: onDefault}
	}
	texts := map[string]string{}
	for _, n := range m.NICs {
		texts[n.Name] = containerbroker.NIC{Bridge: n.Bridge, MAC: n.MAC, MTU: n.MTU}.String()
	}
	return texts
}

// foundNICs returns descriptions of the domain's interfaces that hostler made,
// and the interfaces themselves, by their names inside the guest. It skips
// interfaces that another tool added.
func foundNICs(interfaces []libvirtxml.DomainInterface, uuid string) (texts map[string]string, at map[string]libvirtxml.DomainInterface) {
	texts, at = map[string]string{}, map[string]libvirtxml.DomainInterface{}
	for _, n := range interfaces {
		mac := ""
		if n.MAC != nil {
			mac = strings.ToLower(n.MAC.Address)
		}
		if name, ok := named(n.Alias, aliasDefault); ok {
			texts[name], at[name] = onDefault, n
			continue
		}
		name, ok := named(n.Alias, aliasNIC)
		if !ok {
			continue
		}
		found := containerbroker.NIC{MAC: mac}
		if n.Source != nil && n.Source.Bridge != nil {
			found.Bridge = n.Source.Bridge.Bridge
		}
		if n.MTU != nil {
			found.MTU = int(n.MTU.Size)
		}
		if mac == macOf(uuid, name) {
			found.MAC = "" // hostler derived this address, because the machine declares none
		}
		texts[name], at[name] = found.String(), n
	}
	return texts, at
}

// portsOf returns the host's ends of interfaces. hostler needs them because
// libvirt does not reattach an end that has left its bridge.
func portsOf(interfaces map[string]libvirtxml.DomainInterface) map[string]containerbroker.Port {
	var ports map[string]containerbroker.Port
	for name, n := range interfaces {
		if n.Target == nil || n.Target.Dev == "" || n.Source == nil || n.Source.Bridge == nil {
			continue
		}
		if ports == nil {
			ports = map[string]containerbroker.Port{}
		}
		ports[name] = containerbroker.Port{Device: n.Target.Dev, Bridge: n.Source.Bridge.Bridge}
	}
	return ports
}

// dataDisk returns the disk by which a guest gets a block device of the host.
// The guest finds it as /dev/disk/by-id/virtio-SERIAL.
func dataDisk(disk containerbroker.Disk, target string) libvirtxml.DomainDisk {
	d := libvirtxml.DomainDisk{
		Device: "disk", Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw", Cache: "none", Discard: "unmap"},
		Source: &libvirtxml.DomainDiskSource{Block: &libvirtxml.DomainDiskSourceBlock{Dev: disk.Source}},
		Target: &libvirtxml.DomainDiskTarget{Dev: target, Bus: "virtio"},
		Serial: serialOf(disk.Device), Alias: &libvirtxml.DomainAlias{Name: aliasDisk + aliasName.Replace(disk.Name)},
	}
	if disk.ReadOnly {
		d.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
	}
	return d
}

// maxSerial is the size in bytes of the longest serial that virtio-blk passes
// on (VIRTIO_BLK_ID_BYTES).
const maxSerial = 20

// serialOf returns the name of the volume, e.g. data for /dev/hostler-data. If
// the name is too long for a serial, the result is its beginning and a digest.
func serialOf(device string) string {
	name := strings.TrimPrefix(path.Base(device), "hostler-")
	if len(name) <= maxSerial {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxSerial-9] + "-" + hex.EncodeToString(sum[:4])
}

func diskTexts(m containerbroker.Machine) map[string]string {
	texts := map[string]string{}
	for _, disk := range m.Disks {
		texts[disk.Name] = diskText(disk.Source, serialOf(disk.Device), disk.ReadOnly)
	}
	return texts
}

func diskText(source, serial string, readOnly bool) string {
	text := source + " with serial " + serial
	if readOnly {
		text += ", read-only"
	}
	return text
}

// foundDisks returns descriptions of a domain's data disks that hostler made,
// and the disks themselves, by name. The root disk and the seed are no data
// disks.
func foundDisks(disks []libvirtxml.DomainDisk) (texts map[string]string, at map[string]libvirtxml.DomainDisk) {
	texts, at = map[string]string{}, map[string]libvirtxml.DomainDisk{}
	for _, d := range disks {
		name, ok := named(d.Alias, aliasDisk)
		if !ok {
			continue
		}
		source := ""
		if d.Source != nil && d.Source.Block != nil {
			source = d.Source.Block.Dev
		}
		texts[name], at[name] = diskText(source, d.Serial, d.ReadOnly != nil), d
	}
	return texts, at
}

// fileOf returns the path of the file behind the disk with the given target, or
// "" if there is none.
func fileOf(disks []libvirtxml.DomainDisk, target string) string {
	for _, d := range disks {
		if d.Target != nil && d.Target.Dev == target && d.Source != nil && d.Source.File != nil {
			return d.Source.File.File
		}
	}
	return ""
}
