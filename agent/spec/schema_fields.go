package spec

// fieldSchema is the part of a field's JSON Schema that its Go type does not
// show.
type fieldSchema struct {
	description string
	required    bool
	standard    any      // the default
	words       []string // enum
	pattern     string
	least, most int
	number      string // for a number: its name in messages, e.g. "a number of CPUs"
	names       string // for a map: the form of its keys
}

// The patterns of values that are written as text.
const (
	sizePattern   = `^[0-9]{1,19}(B|KiB|MiB|GiB|TiB)$`
	prefixPattern = `^[0-9A-Fa-f.:]+/[0-9]{1,3}$`
)

var imageSchema = `^(` + imagePattern + `|` + ownSchemes(":.+", "|") + `|simplestreams:` + namePattern + `/.+|(file:/|https://)[^#]+#sha256=[0-9a-f]{64})$`

// declarationSchema describes every field of the declared types. Each entry is
// named by the Go type and the key. A test compares the entries with the types.
var declarationSchema = merged(machineSchema, map[string]fieldSchema{
	"Declaration.version":     {description: "Version of this grammar: 1.", required: true, least: Version, most: Version},
	"Declaration.name":        {description: "Name of the declaration; without it, the file's name without its extension. Applying a declaration replaces the declaration of the same name.", pattern: "^" + namePattern + "$"},
	"Declaration.networks":    {description: "Networks of the host, by name.", names: namePattern},
	"Declaration.volumes":     {description: "Block volumes, by name.", names: namePattern},
	"Declaration.filesystems": {description: "Filesystems, by name.", names: namePattern},
	"Declaration.machines":    {description: "Machines, by name. A machine's instance has the machine's name.", names: machinePattern},

	"Network.bridge":     {description: "Interface name of the bridge, at most 15 characters; made if absent.", required: true, pattern: "^" + interfacePattern + "$"},
	"Network.addresses":  {description: "The host's own addresses on the bridge, with prefix length, like 10.20.0.1/24. They give the network its subnets.", pattern: prefixPattern},
	"Network.mtu":        {description: "Largest packet in bytes; at least 1280 with an IPv6 address. Left out: as the kernel has it, usually 1500.", least: minMTU, most: maxMTU},
	"Network.interfaces": {description: "Interfaces of the host to put under the bridge. The change is reverted unless it is confirmed.", pattern: "^" + interfacePattern + "$"},
	"Network.forwarding": {description: "Forward packets between this network and others.", standard: false},
	"Network.proxy-arp":  {description: "Answer ARP on the bridge for IPv4 addresses that the host reaches by another link, if it forwards IPv4. For IPv6 only addresses that the kernel has as proxied neighbours are answered.", standard: false},
	"Network.nat":        {description: "Masquerade packets that leave the host from this network.", standard: false},
	"Network.dhcp":       {description: "DHCP and DNS on the bridge for guests without a static address.", standard: false},

	"Volume.provider": {description: "The volume's provider: loop (a file of the host).", required: true, words: volumeProviders},
	"Volume.size":     {description: "Size, like 1GiB; at least 1MiB.", required: true},

	"Volume.allocation": {description: "full: the host's space is reserved when the volume is created; sparse: as data is written.", standard: AllocationFull, words: allocations},
	"Volume.retain":     {description: "true: the data is kept when the volume is no longer declared.", standard: false},

	"Filesystem.volume":        {description: "Volume that the filesystem is made on. Either this or a provider.", pattern: "^" + namePattern + "$"},
	"Filesystem.type":          {description: "Type of a filesystem on a volume.", standard: "ext4", words: filesystemTypes},
	"Filesystem.provider":      {description: "The filesystem's provider: tmpfs (memory) or rootfs (a part of the host's filesystem). Either this or a volume.", words: filesystemProviders},
	"Filesystem.size":          {description: "Size, like 64MiB; at least 1MiB. Needed with a provider; a filesystem on a volume is as large as the volume."},
	"Filesystem.mount-options": {description: "Mount options for the kernel, one per entry, like noatime. Use read-only of a machine's storage entry for ro, and size for the size of a tmpfs.", pattern: mountOptionForm.String()},

	"Filesystem.wipe":   {description: "true: any other data found on the volume is destroyed. Only on a volume.", standard: false},
	"Filesystem.shared": {description: "true: several machines may have it. Only with a provider.", standard: false},
	"Filesystem.retain": {description: "true: the data is kept when the filesystem is no longer declared. Only for rootfs; data on a volume is kept with the volume.", standard: false},

	"NIC.network": {description: "Network that the interface is on.", required: true, pattern: "^" + namePattern + "$"},
	"NIC.router":  {description: "true: the machine is a router or a DHCP server on the network, so it may send packets of other addresses, router advertisements and DHCP's answers. Its MAC address is enforced.", standard: false},
	"NIC.address": {description: "Static address with prefix length, in a subnet of the network, like 10.20.0.10/24. Left out: one is allocated and kept.", pattern: prefixPattern},

	"Attachment.filesystem": {description: "Filesystem of this file to attach at the path. Either this or a volume.", pattern: "^" + namePattern + "$"},
	"Attachment.path":       {description: "Absolute path in the guest at which the filesystem appears.", pattern: "^/.+$"},
	"Attachment.volume":     {description: "Volume of this file to attach as a block device.", pattern: "^" + namePattern + "$"},
	"Attachment.read-only":  {description: "The guest may only read.", standard: false},

	"CloudInit.on-change": {
		description: "The effect of changed user-data or SSH keys on an existing machine. ignore: none; they take effect in a new machine. rerun: at its next start cloud-init runs the first boot again, with new SSH host keys and every command of the user-data.",
		standard:    OnChangeIgnore, words: []string{OnChangeIgnore, OnChangeRerun},
	},
	"CloudInit.user-data": {description: "User-data for cloud-init, at most 64 KiB: #cloud-config, a script (#!) or MIME.", pattern: `^(#|From |[Cc][Oo][Nn][Tt][Ee][Nn][Tt]-|[Mm][Ii][Mm][Ee]-)`},

	"Publish.protocol":  {description: "Protocol.", required: true, words: []string{"tcp", "udp"}},
	"Publish.host-port": {description: "Port on the host; each only once per protocol.", required: true, least: 1, most: 65535},
	"Publish.port":      {description: "Port in the guest.", required: true, least: 1, most: 65535},
	"Publish.sources":   {description: "Ranges that may reach the port, like 192.168.0.0/16. Left out: everyone.", pattern: prefixPattern},
})
