package kvm

import (
	"os"
	"path/filepath"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
)

// life is a running guest, from its start to its end. The guest may differ from
// the definition, which applies at the next start, if another tool changed only
// one of the two.
type life struct {
	// id is libvirt's number of this life. written is the result of written()
	// before the guest was read.
	id      int32
	written time.Time
	// domain describes the running guest. It is nil if the guest ended before
	// it was read.
	domain *libvirtxml.Domain
	// slots is the result of freeSlots() for the running guest.
	slots int
}

// written returns when libvirt last wrote the status file of a running guest.
// The time shows changes for which libvirt sends no event, e.g. of processors.
// It is zero if the file cannot be seen.
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
		l.domain, l.slots = &def.domain, def.slots
	}
	return l, err
}

// settings returns the settings and the room of the running guest. Settings
// that cannot be read from the guest are copied from stored.
func (l *life) settings(def definition, stored containerbroker.Settings) (*containerbroker.Settings, *containerbroker.Room) {
	s := stored
	for _, p := range properties {
		if p.running && l.domain.VCPU != nil {
			p.read(l.domain, &s.Properties)
		}
	}
	s.NICs, _ = def.ownNICs(l.domain.Devices.Interfaces)
	s.Disks, _ = foundDisks(l.domain.Devices.Disks)
	_, places := cpusOf(l.domain.VCPU)
	return &s, &containerbroker.Room{CPUs: places, Devices: l.slots}
}

// ownNICs is like foundNICs(), but leaves out the interfaces in note.Left.
func (def definition) ownNICs(interfaces []libvirtxml.DomainInterface) (texts map[string]string, at map[string]libvirtxml.DomainInterface) {
	texts, at = foundNICs(interfaces, def.domain.UUID)
	if def.note != nil {
		for _, name := range def.note.Left {
			delete(texts, name)
			delete(at, name)
		}
	}
	return texts, at
}
