package spec

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// ContainerType is a way to run machines.
type ContainerType string

// The container types.
const (
	LXD   ContainerType = "lxd"
	Incus ContainerType = "incus"
	KVM   ContainerType = "kvm"
	LXC   ContainerType = "lxc"
)

// TypeInfo describes a container type, except for its driver and initialiser.
// The agent constructs those in agent/drivers.go.
type TypeInfo struct {
	Type ContainerType
	// Hypervisor is the hypervisor's name in messages. Description describes the
	// type in the schema.
	Hypervisor, Description string
	// ImageForm is the format of the type's image files; see package images.
	ImageForm string
	// OwnImages is true if machines may use an image of the hypervisor's own
	// store, as TYPE:ALIAS, and the hypervisor reports the image of an instance.
	OwnImages bool
	// Container is true if a machine shares the host's kernel. Such a machine can
	// be privileged and use the host's filesystems.
	Container bool
	// MinMemory and MinRootDisk are the smallest sizes of a machine.
	MinMemory, MinRootDisk Size
	// LocalBridge is the bridge that the hypervisor creates itself.
	LocalBridge string

	// MovesTo is the type to which machines of the type can move with their data,
	// or "".
	MovesTo ContainerType

	// pool returns the configured storage pool of root disks. It is nil for a type
	// without that setting.
	pool func(TypesConfig) string
}

// containerTypes is the table of container types, in the order in which lists
// show them.
var containerTypes = []TypeInfo{
	{
		Type: LXD, Hypervisor: "LXD", Description: "LXD container", ImageForm: "lxd", OwnImages: true, Container: true,
		MinMemory: minMemory, MinRootDisk: minRootDisk, LocalBridge: "lxdbr0", MovesTo: Incus,
		pool: func(c TypesConfig) string { return c.LXD.Pool },
	},
	{
		Type: Incus, Hypervisor: "Incus", Description: "Incus container", ImageForm: "lxd", OwnImages: true, Container: true,
		MinMemory: minMemory, MinRootDisk: minRootDisk, LocalBridge: "incusbr0",
		pool: func(c TypesConfig) string { return c.Incus.Pool },
	},
	{ // A KVM guest boots its own kernel, which needs more memory (behaviour K1).
		Type: KVM, Hypervisor: "KVM", Description: "virtual machine", ImageForm: "disk",
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
	LXD   LXDConfig `json:"lxd"`
	Incus LXDConfig `json:"incus"`
	KVM   KVMConfig `json:"kvm"`
	LXC   LXCConfig `json:"lxc"`
}

// LXDConfig configures containers of LXD or Incus.
type LXDConfig struct {
	Pool string `json:"pool"`
	MTU  int    `json:"mtu"`
	// NetworkMethod is local (the daemon's own bridge) or provider (bridges that
	// the administrator makes).
	NetworkMethod string `json:"network-method"`
}

// KVMConfig configures KVM guests.
type KVMConfig struct {
	// Accelerator is auto, kvm or tcg.
	Accelerator string `json:"accelerator"`
	Pool        string `json:"pool"`
}

// LXCConfig configures containers of LXC.
type LXCConfig struct {
	// Path is liblxc's folder of instances.
	Path string `json:"path"`
	// PoolSize is the size of a new pool of root disks; 0 means half of the free
	// space, within bounds.
	PoolSize Size `json:"pool-size"`
	// MTU is the MTU of NICs that declare none; 0 means the bridge's.
	MTU int `json:"mtu"`
	// NetworkMethod is local (the bridge of LXC's package) or provider (bridges
	// that the administrator makes).
	NetworkMethod string `json:"network-method"`
	// KeepRemoved is how long the logs of removed instances are kept.
	KeepRemoved Duration `json:"keep-removed"`
}

func defaultTypes() TypesConfig {
	containers := LXDConfig{Pool: "default", MTU: 1500, NetworkMethod: "local"}
	return TypesConfig{
		LXD: containers, Incus: containers,
		KVM: KVMConfig{Accelerator: "auto", Pool: "default"},
		LXC: LXCConfig{Path: "/var/lib/lxc", NetworkMethod: "local", KeepRemoved: Duration(168 * time.Hour)},
	}
}

// typesSchema is the part of configSchema for TypesConfig.
var typesSchema = map[string]fieldSchema{
	"TypesConfig.lxd":          {description: "Containers of LXD."},
	"TypesConfig.incus":        {description: "Containers of Incus."},
	"TypesConfig.kvm":          {description: "KVM guests."},
	"TypesConfig.lxc":          {description: "Containers of classic LXC."},
	"LXDConfig.pool":           {description: "The type's storage pool for the root disks of new machines; without the key, the pool that the default profile names, or else the profile hostler."},
	"LXDConfig.mtu":            {description: "Largest packet, in bytes, of the bridge that hostler makes where the type has none."},
	"LXDConfig.network-method": {description: "local: machines without declared networks are on the type's own bridge; provider: on bridges made outside hostler.", words: []string{"local", "provider"}},
	"KVMConfig.accelerator":    {description: "How guests run; auto uses KVM if a test guest ran under it, else emulation.", words: []string{"auto", "kvm", "tcg"}},
	"KVMConfig.pool":           {description: "libvirt's storage pool for the disks."},
	"LXCConfig.path":           {description: "liblxc's folder of containers."},
	"LXCConfig.pool-size":      {description: "Size of the pool that hostler makes for root disks; 0: half of the free space, 10 to 500 GiB."},
	"LXCConfig.mtu":            {description: "Largest packet, in bytes, of NICs that declare none; 0: the bridge's."},
	"LXCConfig.network-method": {description: "local: machines without declared networks are on lxcbr0; provider: on bridges made outside hostler, and lxcbr0 is not made.", words: []string{"local", "provider"}},
	"LXCConfig.keep-removed":   {description: "How long the logs of a removed machine are kept, in a hidden folder below path; 0s: not at all. Of more than 20 removed machines, the oldest logs go sooner."},
}

// lxcPathForm matches paths that are safe in lines of liblxc's configuration.
var lxcPathForm = regexp.MustCompile(`^(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+$`)

func (c *configChecker) types(t TypesConfig) {
	for _, of := range []struct {
		path string
		LXDConfig
	}{{"types.lxd", t.LXD}, {"types.incus", t.Incus}} {
		c.matches(of.path+".pool", of.Pool, poolForm, "the name of a storage pool")
		c.between(of.path+".mtu", of.MTU, minMTU, maxMTU)
		c.word(of.path+".network-method", of.NetworkMethod, "local", "provider")
	}
	c.word("types.kvm.accelerator", t.KVM.Accelerator, "auto", "kvm", "tcg")
	c.matches("types.kvm.pool", t.KVM.Pool, poolForm, "the name of a storage pool")
	if !lxcPathForm.MatchString(t.LXC.Path) {
		c.bad("types.lxc.path", "%s is not an absolute path of letters, digits, dots, hyphens and underscores; write it like /var/lib/lxc", quote(t.LXC.Path))
	}
	if t.LXC.PoolSize != 0 && t.LXC.PoolSize < GiB {
		c.bad("types.lxc.pool-size", "%s is too small; use at least 1GiB, or 0", t.LXC.PoolSize)
	}
	if t.LXC.MTU != 0 {
		c.between("types.lxc.mtu", t.LXC.MTU, minMTU, maxMTU)
	}
	c.word("types.lxc.network-method", t.LXC.NetworkMethod, "local", "provider")
	c.span("types.lxc.keep-removed", t.LXC.KeepRemoved, 0, maxKeepRemoved)
}

// UseProvidedNetworks reports whether machines without declared networks use
// bridges that the host's administrator provides.
func (t TypesConfig) UseProvidedNetworks() bool {
	return slices.Contains([]string{t.LXD.NetworkMethod, t.Incus.NetworkMethod, t.LXC.NetworkMethod}, "provider")
}

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

func typeNames(fits func(TypeInfo) bool) []string {
	var names []string
	for _, i := range containerTypes {
		if fits(i) {
			names = append(names, string(i.Type))
		}
	}
	return names
}

// PoolOf returns the configured pool for the root disks of a type. It returns
// "" if the default is configured, which lets the hypervisor choose.
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

// leastSizes describes the smallest sizes, e.g. "16MiB, for kvm 512MiB". of
// returns the smallest size of a type.
func leastSizes(least Size, of func(TypeInfo) Size) string {
	texts := []string{least.String()}
	for _, i := range containerTypes {
		if size := of(i); size != least {
			texts = append(texts, "for "+string(i.Type)+" "+size.String())
		}
	}
	return strings.Join(texts, ", ")
}

// ownSchemes lists the types that have OwnImages, e.g. "lxd:ALIAS". suffix
// follows each name, and separator stands between two of them.
func ownSchemes(suffix, separator string) string {
	names := typeNames(func(i TypeInfo) bool { return i.OwnImages })
	return strings.Join(names, suffix+separator) + suffix
}
