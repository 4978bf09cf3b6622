package spec

import (
	"maps"
	"slices"
)

// Machine is a declared machine.
type Machine struct {
	Type       ContainerType  `json:"type"`
	Image      string         `json:"image"`
	CPUs       int            `json:"cpus,omitempty"`
	Memory     Size           `json:"memory,omitempty"`
	RootDisk   Size           `json:"root-disk,omitempty"`
	Networks   map[string]NIC `json:"networks,omitempty"`
	Storage    []Attachment   `json:"storage,omitempty"`
	CloudInit  CloudInit      `json:"cloud-init,omitzero"`
	SSHKeys    []string       `json:"ssh-keys,omitempty"`
	Publish    []Publish      `json:"publish,omitempty"`
	Autostart  *bool          `json:"autostart,omitempty"` // nil means true
	Running    *bool          `json:"running,omitempty"`   // nil means true
	Retain     bool           `json:"retain,omitempty"`
	Privileged bool           `json:"privileged,omitempty"`
	Nesting    bool           `json:"nesting,omitempty"`
	// RenamedFrom is the machine's former name. The machine keeps its instance and
	// data under the new name.
	RenamedFrom string `json:"renamed-from,omitempty"`
}

// machineSchema is the part of declarationSchema for Machine. A number is checked
// against its bounds.
var machineSchema = map[string]fieldSchema{
	"Machine.type":         {description: "Container type: " + described() + ".", required: true, words: TypeNames()},
	"Machine.image":        {description: "Image: OS/RELEASE like debian/12, file:/PATH#sha256=DIGEST, https://HOST/PATH#sha256=DIGEST, " + ownSchemes(":ALIAS", ", ") + " or simplestreams:SERVER/IMAGE.", required: true, pattern: imageSchema},
	"Machine.cpus":         {description: "Number of CPUs. Left out: the container type's default.", least: 1, most: maxCPUs, number: "a number of CPUs"},
	"Machine.memory":       {description: "Memory, like 512MiB; at least " + leastSizes(minMemory, func(i TypeInfo) Size { return i.MinMemory }) + ". Left out: the container type's default."},
	"Machine.root-disk":    {description: "Size of the root disk, like 4GiB; at least " + leastSizes(minRootDisk, func(i TypeInfo) Size { return i.MinRootDisk }) + ". Left out: the container type's default."},
	"Machine.networks":     {description: "Network interfaces, by their names in the guest, like eth0.", names: guestInterfacePattern},
	"Machine.storage":      {description: "Filesystems at a path, and volumes as block devices."},
	"Machine.cloud-init":   {description: "Settings for cloud-init in the guest."},
	"Machine.ssh-keys":     {description: "SSH public keys for the image's user: lines like those of a .pub file.", pattern: `^[^\n\t]+$`},
	"Machine.publish":      {description: "Ports of the guest that are reachable on the host. Needs a network on the machine."},
	"Machine.autostart":    {description: "Start with the host.", standard: true},
	"Machine.running":      {description: "false: defined but stopped.", standard: true},
	"Machine.renamed-from": {description: "The name that the machine had before: its instance and its data are kept. It can be removed once the machine has its new name.", pattern: machinePattern},
	"Machine.retain":       {description: "true: the instance survives its declaration (released, not destroyed).", standard: false},
	"Machine.privileged":   {description: "Run the container privileged: its root is the host's root. Containers only.", standard: false},
	"Machine.nesting":      {description: "Allow containers within the machine.", standard: false},
}

// WantsRunning reports whether the machine should run. It should unless the
// declaration says "running: false".
func (m Machine) WantsRunning() bool { return m.Running == nil || *m.Running }

// WantsAutostart reports whether the machine should start with the host. It
// should unless the declaration says "autostart: false".
func (m Machine) WantsAutostart() bool { return m.Autostart == nil || *m.Autostart }

// Len returns the number of objects.
func (d Declaration) Len() int {
	return len(d.Machines) + len(d.Networks) + len(d.Volumes) + len(d.Filesystems)
}

// Objects lists the declared objects as KIND/NAME, sorted.
func (d Declaration) Objects() []string {
	var objects []string
	for name := range maps.Keys(d.Machines) {
		objects = append(objects, KindMachine+"/"+name)
	}
	for name := range maps.Keys(d.Volumes) {
		objects = append(objects, KindVolume+"/"+name)
	}
	for name := range maps.Keys(d.Filesystems) {
		objects = append(objects, KindFilesystem+"/"+name)
	}
	for name := range maps.Keys(d.Networks) {
		objects = append(objects, KindNetwork+"/"+name)
	}
	slices.Sort(objects)
	return objects
}
