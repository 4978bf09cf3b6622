package kvm

import (
	"runtime"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// property is a row of the table of settings that are plain values in a
// domain's definition.
type property struct {
	field string
	// fill replaces a missing value by the default, and a too small value by
	// the minimum. It is nil if there is neither.
	fill func(*containerbroker.Properties)
	// read reads the definition of a domain, or of its running guest.
	read func(*libvirtxml.Domain, *containerbroker.Properties)
	// write changes a definition that takes effect at the next start.
	write func(*libvirtxml.Domain, containerbroker.Properties) error
	// waits returns why a running guest gets the value only at its next start.
	// If it is nil or returns "", live changes the running guest.
	waits func(want containerbroker.Properties, i containerbroker.Instance) string
	live  func(*updating) error
	// running is true if the property is also read from the running guest. For
	// other properties, the running value is taken to be the stored value.
	running bool
}

// properties is the table of those settings. It lacks the root disk, which is a
// file, and autostart, which libvirt stores outside the definition.
var properties = []property{
	{
		field: containerbroker.FieldCPUs, running: true,
		fill:  func(p *containerbroker.Properties) { p.CPUs = max(p.CPUs, defaultCPUs) },
		read:  func(d *libvirtxml.Domain, p *containerbroker.Properties) { p.CPUs, _ = cpusOf(d.VCPU) },
		write: func(d *libvirtxml.Domain, p containerbroker.Properties) error { setCPUs(d, p.CPUs); return nil },
		waits: func(want containerbroker.Properties, i containerbroker.Instance) string {
			if want.CPUs < i.Now().CPUs {
				return "a running guest does not release a processor"
			}
			if i.Room != nil && want.CPUs > i.Room.CPUs {
				return "a running guest has no slots for so many processors"
			}
			return ""
		},
		live: (*updating).plugCPUs,
	},
	{
		field: containerbroker.FieldMemory,
		fill: func(p *containerbroker.Properties) {
			if p.Memory == 0 {
				p.Memory = defaultMemory
			}
			p.Memory = wholeMiB(max(p.Memory, leastMemory))
		},
		read:  func(d *libvirtxml.Domain, p *containerbroker.Properties) { p.Memory = memoryOf(d) },
		write: func(d *libvirtxml.Domain, p containerbroker.Properties) error { return setMemory(d, p.Memory) },
		waits: func(want containerbroker.Properties, i containerbroker.Instance) string {
			if want.Memory > i.Now().Memory {
				return "a guest gets more memory when it starts"
			}
			return ""
		},
		live: (*updating).balloon,
	},
}

// cpusOf returns the number of processors that a domain has, and the largest
// number that it can have without a restart.
func cpusOf(v *libvirtxml.DomainVCPU) (has, places int) {
	if v == nil {
		return 0, 0
	}
	if v.Current != 0 {
		return int(v.Current), int(v.Value)
	}
	return int(v.Value), int(v.Value)
}

// setCPUs sets the number of processors in a definition to n and leaves room
// for more. If the definition divides processors into sockets or NUMA cells,
// the maximum stays unchanged, or grows by whole sockets if n is larger.
func setCPUs(def *libvirtxml.Domain, n int) {
	want := uint(n)
	most := &libvirtxml.DomainVCPU{Value: uint(max(n, min(maxCPUs, max(2*runtime.NumCPU(), 4))))}
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
// memory of a guest with NUMA cells as the sum of its cells. So for a value up
// to that sum, only the balloon changes, and for a larger value the only cell
// grows. If more memory would have to be divided between several cells,
// setMemory returns fault.NeedsOperator.
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

// plugCPUs plugs processors into the running guest. It never unplugs any.
func (u *updating) plugCPUs() error {
	want := uint32(u.want.CPUs)
	has, places := cpusOf(u.live.domain.VCPU)
	if u.want.CPUs <= has || u.want.CPUs > places {
		return nil
	}
	err := u.c.Call("plug in processors", func(l *libvirt.Libvirt) error {
		return l.DomainSetVcpusFlags(u.dom, want, uint32(libvirt.DomainVCPULive))
	})
	if err != nil {
		return err
	}
	// Ask the guest's agent to bring the processors online. A guest without an
	// agent does so by itself, or at its next start.
	_ = u.c.Call("ask the guest to use its processors", func(l *libvirt.Libvirt) error {
		return l.DomainSetVcpusFlags(u.dom, want, uint32(libvirt.DomainVCPULive|libvirt.DomainVCPUGuest))
	})
	return nil
}

// memoryOf reads the memory of a domain, in bytes.
func memoryOf(d *libvirtxml.Domain) int64 {
	bytes := int64(0)
	if d.Memory != nil {
		bytes = bytesOf(d.Memory.Value, d.Memory.Unit)
	}
	if m := d.CurrentMemory; m != nil && bytes > 0 {
		bytes = min(bytes, bytesOf(m.Value, m.Unit))
	}
	return wholeMiB(bytes)
}

// balloon sets the memory of the running guest through its balloon. If the
// wanted memory exceeds the maximum at the guest's start, balloon does nothing,
// and the guest gets the memory at its next start.
func (u *updating) balloon() error {
	m := u.live.domain.Memory
	if m == nil || u.want.Memory > bytesOf(m.Value, m.Unit) {
		return nil
	}
	return u.c.Call("set the guest's memory", func(l *libvirt.Libvirt) error {
		return l.DomainSetMemoryFlags(u.dom, uint64(u.want.Memory>>10), uint32(libvirt.DomainMemLive))
	})
}
