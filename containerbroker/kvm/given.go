package kvm

import (
	"libvirt.org/go/libvirtxml"

	"hostler/internal/fault"
)

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
