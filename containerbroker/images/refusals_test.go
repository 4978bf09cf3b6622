package images

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"hostler/internal/fault"
)

// C15 B2: an image for another architecture than the host's is refused; the
// error names both.
func TestOtherArchitecturesAreRefused(t *testing.T) {
	for arch, good := range map[string]bool{"amd64": true, "x86_64": true, "arm64": false, "aarch64": false, "i686": false} {
		data := pack(t, []file{{name: "metadata.yaml", body: "architecture: " + arch + "\n"}, {name: "rootfs/", kind: tar.TypeDir}})
		err := scanFile(t.Context(), bytes.NewReader(data), int64(len(data)), Expect{Part: partUnified, Arch: "amd64"})
		switch {
		case good && err != nil:
			t.Errorf("%s: %v", arch, err)
		case !good && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "it is for "+arch+" and this host is amd64")):
			t.Errorf("%s: %v", arch, err)
		}
	}
}

// Errors of a single source are whole sentences too.
func TestErrorsOfASourceAreWholeSentences(t *testing.T) {
	c := open(t, nil)
	for want, err := range map[string]error{
		"cannot build image nope/9: this host can build only debian/11":                     second(c.Build(t.Context(), "nope/9", FormatLXD, nil)),
		"cannot build image busybox/1: this host makes no disk of busybox/1 for KVM guests": second(c.Build(t.Context(), "busybox/1", FormatDisk, nil)),
		"cannot import the image: this host has no file /no/such":                           second(c.Import(t.Context(), "/no/such", "a/1", "", nil)),
		"cannot import the image: this host has no file /no/where":                          second(c.Import(t.Context(), "/no/where", "", "", nil)),
	} {
		if !fault.Is(err, fault.NotFound) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s…", err, want)
		}
	}
}

func second(_ Artifact, err error) error { return err }
