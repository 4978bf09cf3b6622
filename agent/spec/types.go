package spec

import (
	"slices"
	"strings"
)

// ContainerType is a way to run machines.
type ContainerType string

// The container types.
const (
	LXD ContainerType = "lxd"
	KVM ContainerType = "kvm"
	LXC ContainerType = "lxc"
)

// TypeInfo holds the differences between container types outside of their
// drivers and initialisers. The agent's constructors of both stand in
// agent/drivers.go.
type TypeInfo struct {
	Type ContainerType
	// Hypervisor is the name in messages, Description the schema's.
	Hypervisor, Description string
	// Supported: this agent can run machines of the type.
	Supported bool
	// ImageForm is the form of an image's file: a format of package images.
	ImageForm string
	// OwnImages: machines may use an image in the hypervisor's own store, as
	// TYPE:ALIAS, and the hypervisor reports an instance's image.
	OwnImages bool
	// Container: a machine shares the host's kernel. It can be privileged and use
	// the host's filesystems.
	Container bool
	// MinMemory and MinRootDisk are the smallest sizes of a machine.
	MinMemory, MinRootDisk Size
	// LocalBridge is the bridge that the hypervisor creates itself.
	LocalBridge string

	// pool is the configured storage pool of root disks.
	pool func(TypesConfig) string
}

// containerTypes is the table of container types, in the order of lists.
var containerTypes = []TypeInfo{
	{
		Type: LXD, Hypervisor: "LXD", Description: "LXD container", Supported: true, ImageForm: "lxd", OwnImages: true, Container: true,
		MinMemory: minMemory, MinRootDisk: minRootDisk, LocalBridge: "lxdbr0",
		pool: func(c TypesConfig) string { return c.LXD.Pool },
	},
	{ // A KVM guest boots its own kernel (behaviour K1).
		Type: KVM, Hypervisor: "KVM", Description: "virtual machine", Supported: true, ImageForm: "disk",
		MinMemory: 512 * MiB, MinRootDisk: 2 * GiB, LocalBridge: "virbr0",
		pool: func(c TypesConfig) string { return c.KVM.Pool },
	},
	{
		Type: LXC, Hypervisor: "LXC", Description: "classic LXC container", ImageForm: "lxd", Container: true,
		MinMemory: minMemory, MinRootDisk: minRootDisk, LocalBridge: "lxcbr0",
	},
}

// TypesConfig is the configuration per container type.
type TypesConfig struct {
	LXD LXDConfig `json:"lxd"`
	KVM KVMConfig `json:"kvm"`
}

// LXDConfig configures containers of LXD.
type LXDConfig struct {
	Pool string `json:"pool"`
	MTU  int    `json:"mtu"`
	// NetworkMethod is local (LXD's own bridge) or provider (bridges that
	// something else makes).
	NetworkMethod string `json:"network-method"`
}

// KVMConfig configures KVM guests.
type KVMConfig struct {
	// Accelerator is auto, kvm or tcg.
	Accelerator string `json:"accelerator"`
	Pool        string `json:"pool"`
}

func defaultTypes() TypesConfig {
	return TypesConfig{
		LXD: LXDConfig{Pool: "default", MTU: 1500, NetworkMethod: "local"},
		KVM: KVMConfig{Accelerator: "auto", Pool: "default"},
	}
}

// typesSchema is the part of configSchema for TypesConfig.
var typesSchema = map[string]fieldSchema{
	"TypesConfig.lxd":          {description: "Containers of LXD."},
	"TypesConfig.kvm":          {description: "KVM guests."},
	"LXDConfig.pool":           {description: "LXD's storage pool for the root disks of new machines; without the key, the pool that LXD's default profile names, or else its profile hostler."},
	"LXDConfig.mtu":            {description: "Largest packet, in bytes, of the bridge that hostler makes where LXD has none."},
	"LXDConfig.network-method": {description: "local: machines without declared networks are on a bridge of LXD; provider: on bridges made outside hostler.", words: []string{"local", "provider"}},
	"KVMConfig.accelerator":    {description: "How guests run; auto uses KVM if a test guest ran under it, else emulation.", words: []string{"auto", "kvm", "tcg"}},
	"KVMConfig.pool":           {description: "libvirt's storage pool for the disks."},
}

func (c *configChecker) types(t TypesConfig) {
	c.matches("types.lxd.pool", t.LXD.Pool, poolForm, "the name of a storage pool")
	c.between("types.lxd.mtu", t.LXD.MTU, minMTU, maxMTU)
	c.word("types.lxd.network-method", t.LXD.NetworkMethod, "local", "provider")
	c.word("types.kvm.accelerator", t.KVM.Accelerator, "auto", "kvm", "tcg")
	c.matches("types.kvm.pool", t.KVM.Pool, poolForm, "the name of a storage pool")
}

// UseProvidedNetworks reports whether machines without declared networks use
// bridges that the host's administrator provides.
func (t TypesConfig) UseProvidedNetworks() bool { return t.LXD.NetworkMethod == "provider" }

// ContainerTypes returns the table of all types. The caller must not change it.
func ContainerTypes() []TypeInfo { return containerTypes }

// Info returns the row of the type, or false if the type is unknown.
func (t ContainerType) Info() (TypeInfo, bool) {
	if i := slices.IndexFunc(containerTypes, func(i TypeInfo) bool { return i.Type == t }); i >= 0 {
		return containerTypes[i], true
	}
	return TypeInfo{}, false
}

// TypeNames returns the names of all types.
func TypeNames() []string {
	return typeNames(func(TypeInfo) bool { return true })
}

// SupportedTypeNames returns the names of the types that this agent can run.
func SupportedTypeNames() []string {
	return typeNames(func(i TypeInfo) bool { return i.Supported })
}

func typeNames(fits func(TypeInfo) bool) []string {
	var names []string
	for _, i := range containerTypes {
		if fits(i) {
			names = append(names, string(i.Type))
		}
	}
	return names
}

// PoolOf returns the configured pool for the root disks of a type, or "" for
// the default, which lets the hypervisor choose.
func (c Config) PoolOf(t ContainerType) string {
	info, known := t.Info()
	if !known || info.pool == nil {
		return ""
	}
	if pool := info.pool(c.Types); pool != info.pool(defaultTypes()) {
		return pool
	}
	return ""
}

// described lists the types for the schema, e.g. "kvm (virtual machine)".
func described() string {
	var all []string
	for _, i := range containerTypes {
		all = append(all, string(i.Type)+" ("+i.Description+")")
	}
	return strings.Join(all, ", ")
}

// leastSizes describes the smallest sizes, e.g. "16MiB, for kvm 512MiB".
func leastSizes(least Size, of func(TypeInfo) Size) string {
	texts := []string{least.String()}
	for _, i := range containerTypes {
		if size := of(i); size != least {
			texts = append(texts, "for "+string(i.Type)+" "+size.String())
		}
	}
	return strings.Join(texts, ", ")
}

// ownSchemes returns the types whose name and a colon begin a reference to an
// image in the hypervisor's own store, each with the suffix and separator.
func ownSchemes(suffix, separator string) string {
	names := typeNames(func(i TypeInfo) bool { return i.OwnImages })
	return strings.Join(names, suffix+separator) + suffix
}
