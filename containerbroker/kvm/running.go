package kvm

import (
	"os"
	"path/filepath"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
)

// life is a guest from its start to its end. It may differ from the definition,
// which applies at the next start, if another tool changed only one of the two.
type life struct {
	// id is libvirt's number of this life. written is the time of libvirt's
	// status file before the life was read.
	id      int32
	written time.Time
	// devices is nil if the life ended before its devices were read.
	devices *libvirtxml.DomainDeviceList
	vcpu    *libvirtxml.DomainVCPU
	slots   int
}

// written returns when libvirt last wrote the status file of a running guest.
// It shows changes for which libvirt sends no event, e.g. of processors. The
// time is zero if the file cannot be seen.
func (d *Driver) written(dom libvirt.Domain) time.Time {
	info, err := os.Stat(filepath.Join(d.opts.RuntimeDir, filepath.Base(dom.Name)+".xml"))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func (l *life) is(dom libvirt.Domain, written time.Time) bool {
	return l != nil && l.id == dom.ID && l.written.Equal(written)
}

func readLife(c *conn, dom libvirt.Domain, written time.Time) (*life, error) {
	l := &life{id: dom.ID, written: written}
	def, err := readDefinition(c, dom, 0)
	if err == nil && def.domain.ID != nil && int32(*def.domain.ID) == dom.ID {
		l.devices, l.vcpu, l.slots = def.domain.Devices, def.domain.VCPU, def.slots
	}
	return l, err
}

// seenRunning adjusts settings that were read from a definition to the running
// guest, as far as a live change can repair the difference; differences that
// wait for the next start are left out. It also records in known how much room
// the guest has for devices and processors.
func (def definition) seenRunning(s *containerbroker.Settings, known *raw) {
	if def.live == nil || def.live.devices == nil {
		return
	}
	nics, _ := foundNICs(def.live.devices.Interfaces, def.domain.UUID)
	disks, _ := foundDisks(def.live.devices.Disks)
	known.slots, known.plugged = def.live.slots, map[string]bool{}
	for name := range nics {
		known.plugged[containerbroker.FieldNIC(name)] = true
	}
	for name := range disks {
		known.plugged[containerbroker.FieldDisk(name)] = true
	}
	if def.note != nil {
		for _, name := range def.note.Left {
			delete(nics, name)
		}
	}
	compareRunning(s.NICs, nics)
	compareRunning(s.Disks, disks)
	v := def.live.vcpu
	if v == nil {
		return
	}
	has, places := int(v.Value), int(v.Value)
	if v.Current != 0 {
		has = int(v.Current)
	}
	if has < s.CPUs && s.CPUs <= places {
		s.CPUs = has
	}
	known.maxCPUs = places
}

// compareRunning adds to the descriptions of devices how the running guest
// differs, e.g. "bridge br0, not while it runs".
func compareRunning(defined, live map[string]string) {
	for name, text := range live {
		switch defined[name] {
		case text:
		case "":
			defined[name] = text + ", while it runs"
		default:
			defined[name] += ", " + text + " while it runs"
		}
	}
	for name, text := range defined {
		if live[name] == "" {
			defined[name] = text + ", not while it runs"
		}
	}
}
