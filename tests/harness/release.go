package harness

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// Release is the distribution of test hosts.
type Release struct {
	// Name is as in images, e.g. debian/13.
	Name string
	// Suite is the release in the distribution's archive.
	Suite string
	// OS is the distribution's name.
	OS string
}

// releases are the distributions of which test hosts are made.
var releases = map[string]Release{
	"debian/12":      {Suite: "bookworm", OS: "Debian"},
	"debian/13":      {Suite: "trixie", OS: "Debian"},
	"debian/testing": {Suite: "testing", OS: "Debian"},
	"ubuntu/24.04":   {Suite: "noble", OS: "Ubuntu"},
	"ubuntu/26.04":   {Suite: "resolute", OS: "Ubuntu"},
}

// HostRelease returns the release of test hosts: the variable
// HOSTLER_TEST_RELEASE, or debian/12.
func HostRelease(t testing.TB) Release {
	t.Helper()
	name := cmp.Or(os.Getenv("HOSTLER_TEST_RELEASE"), "debian/12")
	r, ok := releases[name]
	if !ok {
		t.Fatalf("HOSTLER_TEST_RELEASE is %s, not one of %s", name, strings.Join(slices.Sorted(maps.Keys(releases)), ", "))
	}
	r.Name = name
	return r
}

// Mirrors lists the release's archives as lines of a sources.list.
func (r Release) Mirrors(t testing.TB) (lines []string) {
	t.Helper()
	if r.OS == "Ubuntu" {
		mirror := cmp.Or(os.Getenv("HOSTLER_TEST_UBUNTU_MIRROR"), "http://archive.ubuntu.com/ubuntu")
		for _, part := range []string{"", "-updates", "-security"} {
			lines = append(lines, "deb "+mirror+" "+r.Suite+part+" main universe")
		}
		return lines
	}
	for _, line := range Mirrors(t) {
		if r.Suite != "testing" || !strings.Contains(line, "-updates ") && !strings.Contains(line, "-backports ") {
			lines = append(lines, strings.Replace(line, " bookworm", " "+r.Suite, 1))
		}
	}
	return lines
}

// Hypervisor returns the type of containers that the release has packages for.
func (r Release) Hypervisor() string {
	if r.Name == "debian/12" {
		return "lxd"
	}
	return "incus"
}

// AptOptions returns mmdebstrap's option for a mirror that apt on this machine
// may use although its index has expired, e.g. a copy of an earlier day. Only
// the index of debian/testing expires.
func (r Release) AptOptions(t testing.TB) []string {
	t.Helper()
	if setting := Run(t, "apt-config", "dump", "Acquire::Check-Valid-Until"); setting != "" {
		return []string{"--aptopt=" + strings.TrimSuffix(strings.TrimSpace(setting), ";")}
	}
	return nil
}

// Keyring returns the archive's keys on this machine.
func (r Release) Keyring() string {
	return "/usr/share/keyrings/" + strings.ToLower(r.OS) + "-archive-keyring.gpg"
}
