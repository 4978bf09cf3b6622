package images

import (
	"slices"
	"strings"
	"testing"

	"hostler/internal/fault"
)

// A plan shows the same error for an unavailable image as fetching it would,
// with the nearest name, and without the network.
func TestCheckAvailableFailsLikeAFetch(t *testing.T) {
	path, sum := imageFile(t)
	c := open(t, nil)
	if _, err := c.Import(t.Context(), path, "mine/1", sum, nil); err != nil {
		t.Fatal(err)
	}
	own := []string{"ours", "web/3"}
	for _, good := range []string{"debian/12", "mine/1", "web/3", "lxd:ours", "file:" + path + "#sha256=" + sum, "https://example.org/x#sha256=" + sum} {
		if err := c.CheckAvailable(t.Context(), good, FormatLXD, own); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for ref, want := range map[string]string{
		"debain/12":                       `no image "debain/12" on this host (cache, aliases of the hypervisor), and hostler can build only debian/11, debian/12, debian/13, debian/testing, ubuntu/24.04, ubuntu/26.04, busybox/1; did you mean debian/12?`,
		"mine/2":                          "did you mean mine/1?",
		"plan9/4":                         "debian/13, debian/testing, ubuntu/24.04, ubuntu/26.04, busybox/1",
		"lxd:our":                         "did you mean ours?",
		"file:/no/such#sha256=" + sum:     "there is no file /no/such",
		"simplestreams:nowhere/debian/12": "no server of that name",
	} {
		if err := c.CheckAvailable(t.Context(), ref, FormatLXD, own); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", ref, err, want)
		}
	}
	if err := c.CheckAvailable(t.Context(), "busybox/1", FormatDisk, nil); err == nil || strings.Contains(err.Error(), "LXD") {
		t.Errorf("a disk of busybox: %v", err)
	}
	_, err := c.Ensure(t.Context(), "debain/12", FormatLXD, nil)
	if err == nil || !strings.Contains(err.Error(), "did you mean debian/12?") {
		t.Errorf("fetching says less than the plan: %v", err)
	}
}

func TestBuildable(t *testing.T) {
	c := open(t, func(o *Options) {
		o.AptDir, o.Arch, o.Mirrors = t.TempDir(), "amd64", Mirrors{Debian: "http://user:secret@m.test/debian"}
	})
	rows := map[string]Buildable{}
	for _, b := range c.Buildable(t.Context()) {
		rows[b.Name] = b
	}
	if b := rows["debian/13"]; b.From != "http://m.test/debian" || b.Err != nil || !slices.Equal(b.Formats, []Format{FormatLXD, FormatDisk}) {
		t.Errorf("debian/13: %+v", b)
	}
	if b := rows["ubuntu/26.04"]; b.Err == nil || !strings.Contains(b.Err.Error(), "set apt.ubuntu-mirror") || !slices.Equal(b.Formats, []Format{FormatLXD, FormatDisk}) {
		t.Errorf("ubuntu/26.04: %+v", b)
	}
	if none := open(t, func(o *Options) { o.Sources = []string{"local"} }).Buildable(t.Context()); len(none) != 0 {
		t.Errorf("without building: %+v", none)
	}
}

// A disk image can be built on amd64 only. A plan shows the error that the fetch
// would return.
func TestDisksAreAvailableOnAmd64Only(t *testing.T) {
	for arch, builds := range map[string]string{
		"amd64": "can build only debian/12, debian/13, debian/testing, ubuntu/24.04, ubuntu/26.04",
		"arm64": "makes disks for KVM guests on amd64 only",
	} {
		c := open(t, func(o *Options) { o.Arch = arch })
		if err := c.CheckAvailable(t.Context(), "debian/12", FormatDisk, nil); (err == nil) != (arch == "amd64") || err != nil && !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: a disk of debian/12: %v", arch, err)
		}
		want := `no image "plan9/4" on this host (cache), and hostler ` + builds
		if err := c.CheckAvailable(t.Context(), "plan9/4", FormatDisk, nil); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", arch, err, want)
		}
		for _, b := range c.Buildable(t.Context()) {
			if b.Name == "debian/12" && slices.Contains(b.Formats, FormatDisk) != (arch == "amd64") {
				t.Errorf("%s: %+v", arch, b)
			}
		}
	}
	c := open(t, func(o *Options) { o.Arch = "arm64" })
	planned := c.CheckAvailable(t.Context(), "debian/12", FormatDisk, nil)
	if _, err := c.Ensure(t.Context(), "debian/12", FormatDisk, nil); !fault.Is(err, fault.NotFound) || planned == nil || err.Error() != planned.Error() {
		t.Errorf("the plan shows %v, the fetch returns %v", planned, err)
	}
}

// Debian 12 has Ubuntu's keys in its backports only, so an image of Ubuntu
// cannot be built without them.
func TestPackagesThatNoRepositoryOffers(t *testing.T) {
	c := open(t, func(o *Options) {
		o.AptDir, o.Arch, o.Mirrors = t.TempDir(), "amd64", Mirrors{Debian: "http://m.test/debian", Ubuntu: "http://m.test/ubuntu"}
		o.Packages = &shop{lacks: "ubuntu-keyring"}
	})
	const why = "no repository offers ubuntu-keyring"
	for _, b := range c.Buildable(t.Context()) {
		if lacking := strings.HasPrefix(b.Name, "ubuntu/"); lacking != (b.Err != nil && b.Err.Error() == why) {
			t.Errorf("%s: %v", b.Name, b.Err)
		}
	}
	if err := c.CheckAvailable(t.Context(), "ubuntu/24.04", FormatLXD, nil); !fault.Is(err, fault.NeedsOperator) || err.Error() != "cannot build ubuntu/24.04: "+why {
		t.Error(err)
	}
	if err := c.CheckAvailable(t.Context(), "debian/12", FormatLXD, nil); err != nil {
		t.Error(err)
	}
}

// The list of images names the obstacles of every format in which an image can
// be built.
func TestPackagesForDisksThatNoRepositoryOffers(t *testing.T) {
	for arch, want := range map[string][]string{"amd64": {"debian/12", "debian/13", "debian/testing", "ubuntu/24.04", "ubuntu/26.04"}, "arm64": nil} {
		c := open(t, func(o *Options) {
			o.AptDir, o.Arch, o.Mirrors = t.TempDir(), arch, Mirrors{Debian: "http://m.test/debian", Ubuntu: "http://m.test/ubuntu"}
			o.Packages = &shop{lacks: "qemu-utils"}
		})
		var lacking []string
		for _, b := range c.Buildable(t.Context()) {
			if b.Err != nil {
				lacking = append(lacking, b.Name)
			}
		}
		if !slices.Equal(lacking, want) {
			t.Errorf("%s: packages are missing for %q, want %q", arch, lacking, want)
		}
	}
}
