package packaging

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"hostler/internal/fault"
)

// Set is the packages for a purpose.
type Set struct {
	Names   []string
	Options Options
}

// Release is a distribution and its version, as in os-release(5).
type Release struct{ ID, Version string }

func (r Release) String() string { return strings.TrimSpace(r.ID + " " + r.Version) }

// The purposes that have a set here. The packages of a container type stand in
// its initialiser.
const (
	ForImageBuild = "image-build"
	ForNetworks   = "networks"
	// ForFilesystems lists the tools of all types; callers install each when it
	// is needed.
	ForFilesystems = "filesystems"
)

// Sets lists the packages for a purpose on each release.
type Sets map[Release]Set

// sets lists the packages for each purpose.
var sets = map[string]Sets{
	// dnsmasq-base is the program alone; the package dnsmasq would also start a
	// server at every address of the host.
	ForNetworks: {
		{"debian", "12"}:    {Names: []string{"nftables", "dnsmasq-base"}, Options: Options{NoRecommends: true}},
		{"debian", "13"}:    {Names: []string{"nftables", "dnsmasq-base"}, Options: Options{NoRecommends: true}},
		{"ubuntu", "22.04"}: {Names: []string{"nftables", "dnsmasq-base"}, Options: Options{NoRecommends: true}},
		{"ubuntu", "24.04"}: {Names: []string{"nftables", "dnsmasq-base"}, Options: Options{NoRecommends: true}},
	},
	ForFilesystems: {
		{"debian", "12"}:    {Names: filesystemPackages, Options: Options{NoRecommends: true}},
		{"debian", "13"}:    {Names: filesystemPackages, Options: Options{NoRecommends: true}},
		{"ubuntu", "22.04"}: {Names: filesystemPackages, Options: Options{NoRecommends: true}},
		{"ubuntu", "24.04"}: {Names: filesystemPackages, Options: Options{NoRecommends: true}},
	},
	ForImageBuild: {
		{"debian", "12"}:    {Names: []string{"mmdebstrap", "squashfs-tools"}, Options: Options{NoRecommends: true}},
		{"debian", "13"}:    {Names: []string{"mmdebstrap", "squashfs-tools"}, Options: Options{NoRecommends: true}},
		{"ubuntu", "22.04"}: {Names: []string{"mmdebstrap", "squashfs-tools"}, Options: Options{NoRecommends: true}},
		{"ubuntu", "24.04"}: {Names: []string{"mmdebstrap", "squashfs-tools"}, Options: Options{NoRecommends: true}},
	},
}

// filesystemPackages are the tools of ext4, xfs and btrfs.
var filesystemPackages = []string{"e2fsprogs", "xfsprogs", "btrfs-progs"}

// SetFor returns the packages for a purpose on a release. Errors: as Sets.On.
func SetFor(purpose string, r Release) (Set, error) { return sets[purpose].On(r, purpose) }

// On returns the packages for a release. Without an entry the error names the
// purpose and has the kind NeedsOperator.
func (s Sets) On(r Release, purpose string) (Set, error) {
	if set, ok := s[r]; ok {
		return set, nil
	}
	return Set{}, fault.New(fault.NeedsOperator, "cannot install %s on %s: its packages there are unknown; install it yourself", purpose, r)
}

// ReadRelease reads an os-release file.
func ReadRelease(path string) (Release, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Release{}, fault.New(fault.NeedsOperator, "cannot read this host's release: %s is missing", path)
	}
	if err != nil {
		return Release{}, fault.New(fault.Transient, "cannot read this host's release: %w", err)
	}
	var r Release
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			r.ID = value
		case "VERSION_ID":
			r.Version = value
		}
	}
	return r, nil
}
