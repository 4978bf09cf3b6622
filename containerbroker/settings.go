package containerbroker

import (
	"strconv"
	"strings"

	"hostler/containerbroker/cloudinit"
	"hostler/internal/fault"
)

// Properties are the settings of a machine that are plain values. A new key of
// this kind needs a field here and a row in the table fields.
type Properties struct {
	// CPUs is the number of processors; 0 means the hypervisor's default.
	CPUs int
	// Memory and RootDisk are limits in bytes; 0 means the default.
	Memory, RootDisk int64
	Autostart        bool
	Privileged       bool
	Nesting          bool
}

// Settings are the comparable settings of an instance. UserData and Record are
// compared but never shown to the user.
type Settings struct {
	Properties
	ImageID, Pool string
	// NICs and Disks map names to descriptions for the user. Because only the
	// descriptions are compared, every setting to compare must appear in them.
	NICs, Disks map[string]string
	// Addresses are the addresses that the guest learns when it starts, by the
	// names of interfaces and separated by spaces. An interface whose addresses are
	// not known has no entry.
	Addresses map[string]string
	// Sizes are sizes in bytes, by the names of disks. Only disks whose new size
	// must be announced to a running instance have an entry.
	Sizes                   map[string]int64
	UserData, NetworkConfig string
	Record                  string
	// KeepGuest and RerunFirstBoot are as in Machine. They are read only in
	// wanted settings.
	KeepGuest, RerunFirstBoot bool
}

// The fields of a Change. fieldNIC() and FieldDisk() make the fields "nic NAME"
// and "disk NAME".
const (
	FieldAutostart     = "autostart"
	FieldCPUs          = "cpus"
	FieldDeclaration   = "declaration" // see Refused
	prefixDisk         = "disk "
	FieldImage         = "image"
	FieldMemory        = "memory"
	FieldNesting       = "nesting"
	FieldNetworkConfig = "network-config"
	prefixNIC          = "nic "
	fieldPool          = "pool"
	FieldPrivileged    = "privileged"
	FieldRecord        = "record"
	FieldRootDisk      = "root-disk"
	FieldUserData      = "user-data"
)

// field is a row of the table of fields.
type field struct {
	name  string
	equal func(a, b *Settings) bool
	text  func(*Settings) string
	copy  func(to, from *Settings)
	// impact returns the impact of a change on a running instance, with the
	// reason for it. If the function is nil, the impact is live.
	impact func(want, have Settings) (Impact, string)
	// If optional is set, the value is not compared if either side is empty. If
	// hidden is set, the value may hold secrets. If ofGuest is set, the value
	// is cloud-init's data.
	optional, hidden, ofGuest bool
}

// fields is the table of all settings except interfaces and disks. A driver's
// Rule may override the impact.
var fields = []field{
	row(FieldAutostart, func(s *Settings) *bool { return &s.Autostart }, strconv.FormatBool, nil),
	row(FieldCPUs, func(s *Settings) *int { return &s.CPUs }, limitText, nil),
	optional(row(FieldImage, func(s *Settings) *string { return &s.ImageID }, shortID, always(ImpactRecreate, "an instance is made from its image"))),
	row(FieldMemory, func(s *Settings) *int64 { return &s.Memory }, sizeText, nil),
	row(FieldNesting, func(s *Settings) *bool { return &s.Nesting }, strconv.FormatBool, always(ImpactRestart, "it is read when the instance starts")),
	ofGuest(row(FieldNetworkConfig, func(s *Settings) *string { return &s.NetworkConfig }, cloudinit.DescribeNetwork, networkConfigImpact)),
	optional(row(fieldPool, func(s *Settings) *string { return &s.Pool }, unchanged, always(ImpactRecreate, "a root disk cannot move between storage pools"))),
	row(FieldPrivileged, func(s *Settings) *bool { return &s.Privileged }, strconv.FormatBool, always(ImpactRestart, "the user ids of its files change")),
	hidden(row(FieldRecord, func(s *Settings) *string { return &s.Record }, hiddenText, nil)),
	row(FieldRootDisk, func(s *Settings) *int64 { return &s.RootDisk }, sizeText, nil),
	hidden(ofGuest(row(FieldUserData, func(s *Settings) *string { return &s.UserData }, hiddenText, userDataImpact))),
}

// row returns the row of the setting to which at() returns a pointer.
func row[T comparable](name string, at func(*Settings) *T, text func(T) string, impact func(want, have Settings) (Impact, string)) field {
	return field{
		name: name, impact: impact,
		equal: func(a, b *Settings) bool { return *at(a) == *at(b) },
		text:  func(s *Settings) string { return text(*at(s)) },
		copy:  func(to, from *Settings) { *at(to) = *at(from) },
	}
}

func optional(f field) field { f.optional = true; return f }
func hidden(f field) field   { f.hidden = true; return f }
func ofGuest(f field) field  { f.ofGuest = true; return f }

func unchanged(s string) string { return s }

func always(impact Impact, why string) func(want, have Settings) (Impact, string) {
	return func(Settings, Settings) (Impact, string) { return impact, why }
}

func networkConfigImpact(want, have Settings) (Impact, string) {
	if cloudinit.NetworkOnlyShrinks(have.NetworkConfig, want.NetworkConfig) {
		return ImpactLive, ""
	}
	return ImpactRestart, "the guest configures its interfaces when it starts"
}

// userDataImpact returns a high impact, because most of user-data takes effect
// only in a guest's first boot, which also creates new SSH host keys and runs
// every command of the user again.
func userDataImpact(want, _ Settings) (Impact, string) {
	if want.RerunFirstBoot {
		return ImpactRestart, "cloud-init runs its first boot again when the guest starts"
	}
	return ImpactRecreate, "takes effect only in a new machine; --allow recreate makes it again"
}

// Take copies the value of one field from the settings from, and reports
// whether the value changed.
func (s *Settings) Take(name string, from Settings) bool {
	if nic, is := NICOf(name); is {
		readdressed := take(&s.Addresses, from.Addresses, nic)
		return take(&s.NICs, from.NICs, nic) || readdressed
	}
	if disk, is := DiskOf(name); is {
		sized := take(&s.Sizes, from.Sizes, disk)
		return take(&s.Disks, from.Disks, disk) || sized
	}
	for _, f := range fields {
		if f.name == name && !f.equal(s, &from) {
			f.copy(s, &from)
			return true
		}
	}
	return false
}

func take[T comparable](to *map[string]T, from map[string]T, name string) bool {
	if had, want := (*to)[name], from[name]; had == want {
		return false
	}
	if *to == nil {
		*to = map[string]T{}
	}
	if want, there := from[name]; there {
		(*to)[name] = want
	} else {
		delete(*to, name)
	}
	return true
}

// SettingsOf returns the settings that a machine declares. It fails with
// fault.Invalid if interfaces, disks or cloud-init data are invalid.
func SettingsOf(m Machine) (Settings, error) {
	userData, err := cloudinit.UserData(m.Guest)
	if err != nil && !m.KeepGuest { // else the guest does not use it
		return Settings{}, err
	}
	interfaces := make([]cloudinit.Interface, 0, len(m.NICs))
	s := Settings{
		Properties: m.Properties, ImageID: m.ImageID, Pool: m.Pool, NICs: map[string]string{}, Disks: map[string]string{},
		Addresses: map[string]string{}, UserData: string(userData), KeepGuest: m.KeepGuest, RerunFirstBoot: m.RerunFirstBoot, Record: m.Stamp.Record,
	}
	for _, n := range m.NICs {
		if err := n.check(); err != nil {
			return Settings{}, err
		}
		if s.NICs[n.Name] != "" {
			return Settings{}, fault.New(fault.Invalid, "interface %q is there twice", n.Name)
		}
		s.NICs[n.Name] = n.String()
		if len(n.Addresses) > 0 {
			s.Addresses[n.Name] = strings.Join(Hosts(n.Addresses), " ")
		}
		interfaces = append(interfaces, n.guestSide())
	}
	for _, d := range m.Disks {
		if err := d.check(); err != nil {
			return Settings{}, err
		}
		if s.Disks[d.Name] != "" {
			return Settings{}, fault.New(fault.Invalid, "disk %q is there twice", d.Name)
		}
		s.Disks[d.Name] = d.String()
	}
	networkConfig, err := cloudinit.NetworkConfig(interfaces)
	if err != nil {
		return Settings{}, err
	}
	s.NetworkConfig = string(networkConfig)
	return s, nil
}

// hiddenText returns "(set)" in place of a text that may hold secrets, or "" if
// the text is empty.
func hiddenText(s string) string {
	if s == "" {
		return ""
	}
	return "(set)"
}

func limitText[T int | int64](n T) string {
	switch {
	case n == 0:
		return "default"
	case n < 0:
		return "other"
	}
	return strconv.FormatInt(int64(n), 10)
}

// sizeText formats a number of bytes without rounding, in the notation of
// declarations, e.g. 10GiB.
func sizeText(n int64) string {
	if n <= 0 {
		return limitText(n)
	}
	for _, unit := range []struct {
		name string
		size int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n%unit.size == 0 {
			return strconv.FormatInt(n/unit.size, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}

func shortID(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}
