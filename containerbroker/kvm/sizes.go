package kvm

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// QEMU reads the size of a block device when it opens the device, and again
// only on request. A domain's definition does not record the size that the
// guest knows, so the note does: a request that failed is then repeated.

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

// sized returns the descriptions of the wanted and the present disks. If the
// sizes of a disk differ, its descriptions mention them.
func sized(disks []containerbroker.Disk, want map[string]string, have raw) (wanted, has map[string]string) {
	wanted, has = maps.Clone(want), maps.Clone(have.settings.Disks)
	for _, disk := range disks {
		old, there := has[disk.Name]
		if !there || disk.Size == 0 || disk.Size == have.sizes[disk.Name] {
			continue
		}
		if disk.ReadOnly && have.sizes[disk.Name] == 0 {
			continue // size unknown, e.g. after an adoption: do not restart a guest on a guess
		}
		wanted[disk.Name] += ", of " + containerbroker.SizeText(disk.Size)
		if size := have.sizes[disk.Name]; size > 0 {
			has[disk.Name] = old + ", of " + containerbroker.SizeText(size)
		}
	}
	return wanted, has
}

// readOnly reports whether the machine has the disk read-only. libvirt does not
// announce a new size of such a disk to a running guest.
func readOnly(m containerbroker.Machine, disk string) bool {
	return slices.ContainsFunc(m.Disks, func(d containerbroker.Disk) bool { return d.Name == disk && d.ReadOnly })
}

// diskGrew announces a disk's new size to the running guest, and notes the
// size. A disk that did not grow changes nothing in the guest.
func (u *updating) diskGrew(name string) error {
	size := sizesOf(u.m)[name]
	if size == u.def.note.Sizes[name] {
		return nil
	}
	if u.running && size != 0 && !readOnly(u.m, name) {
		// A disk that was plugged in just now is not among these; the guest
		// knows its size.
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

// writeSizes and readSizes encode the sizes in a note, e.g. "data=1073741824".
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

// setCPUs gives a definition n processors and room for more. If the definition
// lays out processors in sockets or NUMA cells, the maximum stays as it was, or
// grows by whole sockets.
func setCPUs(def *libvirtxml.Domain, n int) {
	want, most := uint(n), vcpus(n)
	if was := def.VCPU; was != nil {
		most.Placement, most.CPUSet = was.Placement, was.CPUSet
		places := max(most.Value, was.Value)
		if cpu := def.CPU; cpu != nil && (cpu.Topology != nil || cpu.Numa != nil) {
			places = max(want, was.Value)
			if t := cpu.Topology; t != nil && want > was.Value {
				socket := uint(max(t.Dies, 1) * max(t.Clusters, 1) * max(t.Cores, 1) * max(t.Threads, 1))
				sockets := (want + socket - 1) / socket
				t.Sockets, places = int(sockets), sockets*socket
			}
		}
		most.Value = places
	}
	if most.Current = want; most.Current == most.Value {
		most.Current = 0
	}
	def.VCPU, def.VCPUs = most, nil
}

// setMemory sets the memory of a definition, in bytes. libvirt computes the
// memory of a guest with NUMA cells as the sum of its cells. So less memory
// goes through the balloon, and more goes into the only cell; with several
// cells it returns fault.NeedsOperator.
func setMemory(def *libvirtxml.Domain, want int64) error {
	kib := uint(want >> 10)
	current := &libvirtxml.DomainCurrentMemory{Value: kib, Unit: "KiB"}
	if def.CPU != nil && def.CPU.Numa != nil && len(def.CPU.Numa.Cell) > 0 && def.Memory != nil {
		cells, total := def.CPU.Numa.Cell, bytesOf(def.Memory.Value, def.Memory.Unit)
		if want <= total {
			def.CurrentMemory = current
			return nil
		}
		if len(cells) > 1 {
			return fault.New(fault.NeedsOperator, "it has %d NUMA cells, and a declaration cannot divide more memory between them: "+
				"change them with `virsh edit`, or declare at most their %d MiB", len(cells), wholeMiB(total)>>20)
		}
		cells[0].Memory, cells[0].Unit = uint((bytesOf(cells[0].Memory, cells[0].Unit)+want-total)>>10), "KiB"
	}
	def.Memory = &libvirtxml.DomainMemory{Value: kib, Unit: "KiB"}
	def.CurrentMemory = current
	return nil
}
