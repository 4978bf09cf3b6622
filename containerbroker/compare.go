package containerbroker

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"hostler/containerbroker/cloudinit"
	"hostler/internal/fault"
)

// The fields of a Diff, in the order in which Diff names them. Interfaces and
// disks have the fields "nic NAME" and "disk NAME": FieldNIC, FieldDisk.
const (
	FieldAutostart     = "autostart"
	FieldCPUs          = "cpus"
	prefixDisk         = "disk "
	FieldImage         = "image"
	FieldMemory        = "memory"
	FieldNesting       = "nesting"
	FieldNetworkConfig = "network-config"
	prefixNIC          = "nic "
	FieldPool          = "pool"
	FieldPrivileged    = "privileged"
	FieldRecord        = "record"
	FieldRootDisk      = "root-disk"
	FieldUserData      = "user-data"
)

// FieldNIC returns the field of an interface.
func FieldNIC(name string) string { return prefixNIC + name }

// FieldDisk returns the field of a disk.
func FieldDisk(name string) string { return prefixDisk + name }

// NICOf returns the name of the interface if the field is an interface.
func NICOf(field string) (name string, ok bool) { return strings.CutPrefix(field, prefixNIC) }

// DiskOf returns the name of the disk if the field is a disk.
func DiskOf(field string) (name string, ok bool) { return strings.CutPrefix(field, prefixDisk) }

// Settings are the comparable settings of an instance. UserData and Record are
// compared and never shown. Limits are in bytes; 0 is the hypervisor's default.
type Settings struct {
	ImageID          string
	CPUs             int
	Memory, RootDisk int64
	Pool             string
	Autostart        bool
	Privileged       bool
	Nesting          bool
	// NICs and Disks are descriptions of the interfaces and disks for the user,
	// by name. Every comparable setting must appear in the description.
	NICs, Disks             map[string]string
	UserData, NetworkConfig string
	// KeepGuest: user-data and network-config are not compared.
	KeepGuest bool
	// RerunFirstBoot: see Machine.
	RerunFirstBoot bool
	Record         string
}

// SettingsOf returns the settings that a machine declares. It fails with
// fault.Invalid if interfaces, disks or cloud-init data are invalid.
func SettingsOf(m Machine) (Settings, error) {
	userData, err := cloudinit.UserData(m.Guest)
	if err != nil {
		return Settings{}, err
	}
	interfaces := make([]cloudinit.Interface, 0, len(m.NICs))
	s := Settings{
		ImageID: m.ImageID, CPUs: m.CPUs, Memory: m.Memory, RootDisk: m.RootDisk, Pool: m.Pool,
		Autostart: m.Autostart, Privileged: m.Privileged, Nesting: m.Nesting,
		NICs: map[string]string{}, Disks: map[string]string{},
		UserData: string(userData), KeepGuest: m.KeepGuest, RerunFirstBoot: m.RerunFirstBoot, Record: m.Stamp.Record,
	}
	for _, n := range m.NICs {
		if err := n.check(); err != nil {
			return Settings{}, err
		}
		if s.NICs[n.Name] != "" {
			return Settings{}, fault.New(fault.Invalid, "interface %q is there twice", n.Name)
		}
		s.NICs[n.Name] = n.String()
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

// ComparableUserData returns the user-data to compare with an instance's: had
// if it differs from want only by passwords of proxies, which earlier versions
// wrote into guests, and want otherwise. A guest is not recreated for that.
func ComparableUserData(m Machine, want, had string) string {
	if want != had && cloudinit.OnlyProxyUsersDiffer(m.Guest, had) {
		return had
	}
	return want
}

// Compare returns the changes that turn have into want, ordered by field.
// impact returns the driver's impact of a field and its reason. An empty
// ImageID or Pool is not compared, on either side.
func Compare(want, have Settings, impact func(field string) (Impact, string)) []Change {
	var changes []Change
	add := func(field, from, to string) {
		how, why := impact(field)
		changes = append(changes, Change{Field: field, From: from, To: to, Impact: how, Reason: why})
	}
	if want.Autostart != have.Autostart {
		add(FieldAutostart, strconv.FormatBool(have.Autostart), strconv.FormatBool(want.Autostart))
	}
	if want.CPUs != have.CPUs {
		add(FieldCPUs, limitText(int64(have.CPUs)), limitText(int64(want.CPUs)))
	}
	addAll(add, FieldDisk, want.Disks, have.Disks)
	if want.ImageID != have.ImageID && want.ImageID != "" && have.ImageID != "" {
		add(FieldImage, shortID(have.ImageID), shortID(want.ImageID))
	}
	if want.Memory != have.Memory {
		add(FieldMemory, SizeText(have.Memory), SizeText(want.Memory))
	}
	if want.Nesting != have.Nesting {
		add(FieldNesting, strconv.FormatBool(have.Nesting), strconv.FormatBool(want.Nesting))
	}
	if want.NetworkConfig != have.NetworkConfig && !want.KeepGuest {
		add(FieldNetworkConfig, cloudinit.DescribeNetwork(have.NetworkConfig), cloudinit.DescribeNetwork(want.NetworkConfig))
	}
	addAll(add, FieldNIC, want.NICs, have.NICs)
	if want.Pool != have.Pool && want.Pool != "" && have.Pool != "" {
		add(FieldPool, have.Pool, want.Pool)
	}
	if want.Privileged != have.Privileged {
		add(FieldPrivileged, strconv.FormatBool(have.Privileged), strconv.FormatBool(want.Privileged))
	}
	if want.Record != have.Record {
		add(FieldRecord, hiddenText(have.Record), "(changed)")
	}
	if want.RootDisk != have.RootDisk {
		add(FieldRootDisk, SizeText(have.RootDisk), SizeText(want.RootDisk))
	}
	if want.UserData != have.UserData && !want.KeepGuest {
		add(FieldUserData, hiddenText(have.UserData), "(changed)")
	}
	return changes
}

// UserDataImpact is the impact and reason of changed user-data. Most of
// user-data takes effect in a guest's first boot alone, which also creates new
// SSH host keys and runs every command of the user again.
func (s Settings) UserDataImpact() (Impact, string) {
	if s.RerunFirstBoot {
		return ImpactRestart, "cloud-init runs its first boot again when the guest starts"
	}
	return ImpactRecreate, "takes effect only in a new machine; --allow recreate makes it again"
}

// addAll compares named things; a missing thing is "".
func addAll(add func(field, from, to string), field func(string) string, want, have map[string]string) {
	all := maps.Clone(have)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, want)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if want[name] != have[name] {
			add(field(name), have[name], want[name])
		}
	}
}

// hiddenText stands for a text that may hold secrets: "(set)", or "" if empty.
func hiddenText(s string) string {
	if s == "" {
		return ""
	}
	return "(set)"
}

func limitText(n int64) string {
	switch {
	case n == 0:
		return "default"
	case n < 0:
		return "other"
	}
	return strconv.FormatInt(n, 10)
}

// SizeText formats bytes exactly and as in a declaration, e.g. 10GiB.
func SizeText(n int64) string {
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
