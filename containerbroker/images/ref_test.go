package images

import (
	"strings"
	"testing"

	"hostler/internal/fault"
)

var digest = strings.Repeat("0a", 32)

func TestParseRef(t *testing.T) {
	for in, want := range map[string]Ref{
		"debian/12":                            {Kind: kindName, Name: "debian/12"},
		"debian/12/slim":                       {Kind: kindName, Name: "debian/12/slim"},
		"busybox/1":                            {Kind: kindName, Name: "busybox/1"},
		"file:/srv/a b.tar#sha256=" + digest:   {Kind: kindFile, Location: "/srv/a b.tar", Digest: digest},
		"https://h:1/x.tar#sha256=" + digest:   {Kind: kindHTTPS, Location: "https://h:1/x.tar", Digest: digest},
		"https://h/x?a=b#sha256=" + digest:     {Kind: kindHTTPS, Location: "https://h/x?a=b", Digest: digest},
		"lxd:my-image":                         {Kind: kindLXD, Location: "my-image"},
		"incus:my-image":                       {Kind: kindIncus, Location: "my-image"},
		"lxd:images:debian/12":                 {Kind: kindLXD, Location: "images:debian/12"},
		"simplestreams:public/debian/12/cloud": {Kind: kindSimplestreams, Server: "public", Name: "debian/12/cloud"},
	} {
		got, err := ParseRef(in)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", in, got, err, want)
		}
		if got.String() != in {
			t.Errorf("%s is written %s", in, got)
		}
	}
}

func TestBadReferencesAreInvalid(t *testing.T) {
	for _, in := range []string{
		"", "debian", "Debian/12", "debian/", "/debian/12", "debian/12/a/b", "debian:12", "debian/../12", "debian/12\n",
		"file:/x", "file:x#sha256=" + digest, "file:/a/../b#sha256=" + digest, "file:/x#sha256=00", "file:/x#sha256=" + strings.ToUpper(digest),
		"file:/#sha256=" + digest, "file:/x#md5=" + digest, "file:/a#b#sha256=" + digest,
		"https://h/x", "https://u:p@h/x#sha256=" + digest, "https://u:secret@h/x", "https://h/x?sig=secret", "https:///x#sha256=" + digest, "https:h/x#sha256=" + digest, "https://h#sha256=" + digest,
		"http://h/x#sha256=" + digest, "lxd:", "lxd:-x", "lxd:a b", "simplestreams:debian", "simplestreams:A/debian/12", "simplestreams:a/",
		"ftp://x", "a/\x00", "a/" + strings.Repeat("b", 3000),
	} {
		if got, err := ParseRef(in); !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.60q: got %+v, %v", in, got, err)
		}
	}
}

// OCI images are refused by name, whatever daemon could run them.
func TestOCIImagesAreRefused(t *testing.T) {
	for _, in := range []string{"docker:nginx", "docker:library/nginx:1.27", "oci:ghcr.io/x/y"} {
		if _, err := ParseRef(in); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "OCI images hold application containers") {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func FuzzParseRef(f *testing.F) {
	for _, seed := range []string{"debian/12", "file:/x#sha256=" + digest, "https://h/x#sha256=" + digest, "lxd:a", "simplestreams:a/b/c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		r, err := ParseRef(in)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("%q: %v", in, err)
			}
			return
		}
		again, err := ParseRef(r.String())
		if err != nil || again != r || r.String() != in {
			t.Fatalf("%q is written %q and read as %+v, %v", in, r, again, err)
		}
	})
}
