package kvm

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
)

// QEMU reads the size of a block device when it opens the device, and later
// only on request. A domain's definition does not record the size that the
// guest knows, so the note records it. A request that failed can then be
// repeated.

// sizesOf returns the known sizes of a machine's disks, in bytes.
func sizesOf(m containerbroker.Machine) map[string]int64 {
	sizes := map[string]int64{}
	for _, disk := range m.Disks {
		if disk.Size > 0 {
			sizes[disk.Name] = disk.Size
		}
	}
	return sizes
}

// readOnly reports whether the machine declares the disk as read-only. libvirt
// does not announce a new size of such a disk to a running guest.
func readOnly(m containerbroker.Machine, disk string) bool {
	return slices.ContainsFunc(m.Disks, func(d containerbroker.Disk) bool { return d.Name == disk && d.ReadOnly })
}

// diskGrew announces a disk's new size to the running guest, and records the
// size in the note. If the size is unchanged, it does nothing.
func (u *updating) diskGrew(name string) error {
	size := sizesOf(u.m)[name]
	if size == u.def.note.Sizes[name] {
		return nil
	}
	if u.running && size != 0 && !readOnly(u.m, name) {
		// u.live lacks a disk that was plugged in just now, whose size the
		// guest already knows.
		if _, at := foundDisks(u.live.domain.Devices.Disks); at[name].Target != nil {
			err := u.c.Call("announce the disk's size to the guest", func(l *libvirt.Libvirt) error {
				return l.DomainBlockResize(u.dom, at[name].Target.Dev, uint64(size), libvirt.DomainBlockResizeBytes)
			})
			if err != nil {
				return err
			}
		}
	}
	sizes := maps.Clone(u.def.note.Sizes)
	if sizes == nil {
		sizes = map[string]int64{}
	}
	if sizes[name] = size; size == 0 {
		delete(sizes, name)
	}
	u.def.note.Sizes = sizes
	return nil
}

// writeSizes and readSizes encode and decode the sizes of disks in a domain's
// note, e.g. "data=1073741824".
func writeSizes(sizes map[string]int64) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		words = append(words, fmt.Sprintf("%s=%d", name, sizes[name]))
	}
	return strings.Join(words, " ")
}

func readSizes(text string) map[string]int64 {
	sizes := map[string]int64{}
	for word := range strings.FieldsSeq(text) {
		name, number, _ := strings.Cut(word, "=")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil && n > 0 {
			sizes[name] = n
		}
	}
	return sizes
}
