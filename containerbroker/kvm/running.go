package kvm

import (
	"os"
	"path/filepath"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
)

// life is a guest as it runs, from its start to its end. It may differ from
// the definition, which is what it becomes at its next start, when somebody
// changed the one without the other.
type life struct {
	// id is libvirt's number of the life, written when libvirt last wrote down
	// how the guest runs, before it was read.
	id      int32
	written time.Time
	// devices is nil when the life ended before they were read.
	devices *libvirtxml.DomainDeviceList
	vcpu    *libvirtxml.DomainVCPU
	slots   int
}

// written is when libvirt last wrote the file that lets it find a running guest
// again after its own restart: of some changes, as of the processors, it gives
// no event. Where the file cannot be seen it is the zero time.
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

// seenRunning has settings that were read of a definition differ from it where
// the running guest does, and can be brought to it as it runs: what waits for
// its next start is no difference. known is told what the guest has places for.
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

// compareRunning has the descriptions of devices say where those of the running
// guest are others.
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
