package kvm

import (
	"runtime"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// K1: the defaults of a machine that declares no sizes, and the minimum sizes.
const (
	defaultMemory, leastMemory     = 512 << 20, 512 << 20
	defaultRootDisk, leastRootDisk = 8 << 30, 2 << 30
	defaultCPUs                    = 1
)

const (
	// maxCPUs bounds the processors that can be plugged in while a guest runs.
	maxCPUs = 16
	// spareSlots is how many devices can be plugged in while a guest runs.
	spareSlots = 8
	// K4: a guest's disks are vda to vdz. Two of them are the root disk and the
	// seed.
	maxDisks   = 26 - 2
	rootTarget = "vda"
	seedTarget = "vdz"
)

// agentChannel is the name of the virtio channel on which QEMU's guest agent
// listens.
const agentChannel = "org.qemu.guest_agent.0"

// plan holds everything from which the domain of a machine is built.
type plan struct {
	machine  containerbroker.Machine
	uuid     string
	settings containerbroker.Settings
	note     note
	kind     string // the domain's type
	network  string // libvirt's network for a machine without interfaces
	// root, seed and log are paths of files in the pool.
	root, seed, log string
}

// settingsOf returns the settings of a machine with all defaults and minimum
// sizes filled in (K1). UserData in the result is the plain text, not its
// digest.
func settingsOf(m containerbroker.Machine) (containerbroker.Settings, error) {
	if err := checkStamp(m.Stamp); err != nil {
		return containerbroker.Settings{}, err
	}
	if m.Privileged {
		return containerbroker.Settings{}, fault.New(fault.Invalid, "a KVM guest cannot be privileged: it runs its own kernel")
	}
	s, err := containerbroker.SettingsOf(m)
	if err != nil {
		return s, err
	}
	for _, disk := range m.Disks {
		if disk.Path != "" {
			return s, fault.New(fault.Invalid, "disk %q: this agent does not share folders of the host with KVM guests yet; give it a volume", disk.Name)
		}
	}
	if len(m.Disks) > maxDisks {
		return s, fault.New(fault.Invalid, "it has %d disks, a KVM guest can have %d", len(m.Disks), maxDisks)
	}
	for _, p := range properties {
		if p.fill != nil {
			p.fill(&s.Properties)
		}
	}
	if s.RootDisk == 0 {
		s.RootDisk = defaultRootDisk
	}
	s.RootDisk = (max(s.RootDisk, leastRootDisk) + 511) &^ 511
	s.Nesting = false // every guest can nest, so there is nothing to set
	s.NICs, s.Disks, s.Sizes = nicTexts(m), diskTexts(m), sizesOf(m)
	return s, nil
}

// domain builds the definition of a new machine. It never concatenates XML.
// Every value goes through a typed field.
func (p plan) domain() (*libvirtxml.Domain, error) {
	metadata, err := p.note.text()
	if err != nil {
		return nil, err
	}
	port := uint(0)
	machine, boot := "q35", &libvirtxml.DomainOS{}
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if arch == "aarch64" {
		machine = "virt"
		boot.Firmware = "efi"
	}
	boot.Type = &libvirtxml.DomainOSType{Arch: arch, Machine: machine, Type: "hvm"}
	root := libvirtxml.DomainDisk{
		Device: "disk", Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "qcow2", Discard: "unmap"},
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: p.root}},
		Target: &libvirtxml.DomainDiskTarget{Dev: rootTarget, Bus: "virtio"}, Boot: &libvirtxml.DomainDeviceBoot{Order: 1},
	}
	devices := &libvirtxml.DomainDeviceList{
		Disks: []libvirtxml.DomainDisk{root, seedDisk(p.seed)},
		Serials: []libvirtxml.DomainSerial{{
			Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}},
			Log:    &libvirtxml.DomainChardevLog{File: p.log, Append: "on"}, Target: &libvirtxml.DomainSerialTarget{Port: &port},
		}},
		Channels: []libvirtxml.DomainChannel{{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{}},
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: agentChannel}},
		}},
		MemBalloon: &libvirtxml.DomainMemBalloon{Model: "virtio"},
		RNGs:       []libvirtxml.DomainRNG{{Model: "virtio", Backend: &libvirtxml.DomainRNGBackend{BuiltIn: &libvirtxml.DomainRNGBackendBuiltIn{}}}},
	}
	devices.Interfaces = wantedNICs(p.machine, p.uuid, p.network)
	for _, disk := range p.machine.Disks {
		devices.Disks = append(devices.Disks, dataDisk(disk, freeTarget(devices.Disks)))
	}
	// Each interface and data disk needs a slot. So do the root disk, the seed,
	// the serial controller, the balloon and the random number generator.
	zero := uint(0)
	devices.Controllers = append(devices.Controllers, libvirtxml.DomainController{Type: "pci", Model: "pcie-root", Index: &zero})
	for range 5 + len(devices.Interfaces) + len(p.machine.Disks) + spareSlots {
		devices.Controllers = append(devices.Controllers, libvirtxml.DomainController{Type: "pci", Model: "pcie-root-port"})
	}
	d := &libvirtxml.Domain{
		Type: p.kind, Name: p.machine.Name, UUID: p.uuid, Metadata: &libvirtxml.DomainMetadata{XML: metadata},
		Description: clean("machine "+p.machine.Name+" of hostler's agent "+p.machine.Stamp.Namespace, 256),
		OS:          boot, CPU: cpuFor(p.kind),
		Features: &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}, APIC: &libvirtxml.DomainFeatureAPIC{}},
		Clock:    &libvirtxml.DomainClock{Offset: "utc"}, OnPoweroff: "destroy", OnReboot: "restart", OnCrash: "destroy",
		Devices: devices,
	}
	if arch == "aarch64" {
		d.Features.APIC = nil
	}
	for _, one := range properties {
		if err := one.write(d, p.settings.Properties); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// cpuFor returns the guest's processor model. With KVM it is the host's model,
// and otherwise everything that TCG can emulate.
func cpuFor(kind string) *libvirtxml.DomainCPU {
	if kind == "kvm" {
		return &libvirtxml.DomainCPU{Mode: "host-passthrough", Migratable: "on"}
	}
	return &libvirtxml.DomainCPU{Mode: "maximum"}
}

func seedDisk(path string) libvirtxml.DomainDisk {
	return libvirtxml.DomainDisk{
		Device: "disk", Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw"},
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: path}},
		Target: &libvirtxml.DomainDiskTarget{Dev: seedTarget, Bus: "virtio"}, ReadOnly: &libvirtxml.DomainDiskReadOnly{},
	}
}

// freeTarget returns the first unused target, e.g. vdb, or "" if all are taken.
func freeTarget(disks []libvirtxml.DomainDisk) string {
	for letter := 'b'; letter < 'z'; letter++ {
		target := "vd" + string(letter)
		if !slices.ContainsFunc(disks, func(d libvirtxml.DomainDisk) bool { return d.Target != nil && d.Target.Dev == target }) {
			return target
		}
	}
	return ""
}

// The prefixes of the aliases that mark hostler's devices.
const (
	aliasNIC     = "ua-nic-"
	aliasDefault = "ua-default-"
	aliasDisk    = "ua-disk-"
)

// aliasName encodes a device's name for a libvirt alias, which may hold only
// letters, digits, - and _.
var aliasName = strings.NewReplacer("_", "__", ".", "_d")

var aliasBack = strings.NewReplacer("__", "_", "_d", ".")

// named returns the device name in an alias, and false if the alias does not
// have the given prefix.
func named(alias *libvirtxml.DomainAlias, prefix string) (string, bool) {
	if alias == nil {
		return "", false
	}
	name, ok := strings.CutPrefix(alias.Name, prefix)
	return aliasBack.Replace(name), ok && name != ""
}
