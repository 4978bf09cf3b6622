package spec

import (
	"net/url"
	"path"
	"regexp"
	"strings"

	"hostler/internal/oneline"
)

// imagePattern is the form of an image reference by name: OS/RELEASE or
// OS/RELEASE/VARIANT.
const imagePattern = `[a-z][a-z0-9.-]*/[a-z0-9][a-z0-9.-]*(/[a-z0-9][a-z0-9.-]*)?`

var (
	imageForm         = regexp.MustCompile(`^` + imagePattern + `$`)
	imageColonForm    = regexp.MustCompile(`^([a-z][a-z0-9.-]*):([0-9][a-z0-9.-]*)$`)
	digestForm        = regexp.MustCompile(`^[0-9a-f]{64}$`)
	aliasForm         = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:+-]*$`)
	simplestreamsForm = regexp.MustCompile(`^` + namePattern + `/[A-Za-z0-9][A-Za-z0-9._/:+-]*$`)
)

// UnknownImage returns the image reference of an adopted machine whose
// hypervisor does not report the image. No instance can be created from that
// reference.
func UnknownImage(t ContainerType) string { return string(t) + ":unknown" }

// image checks an image reference.
func (c *checker) image(at string, m Machine) {
	if !c.ok(at) {
		return
	}
	if !c.has(at) {
		c.bad(at, "the image is missing; add it, like \"image: debian/12\"")
		return
	}
	ref := m.Image
	scheme, rest, _ := strings.Cut(ref, ":")
	of, named := ContainerType(scheme).Info()
	_, known := m.Type.Info()
	switch {
	case len(ref) > 2048:
		c.bad(at, "the reference is %d characters long, more than the 2048 allowed", len(ref))
	case imageForm.MatchString(ref):
	case named && of.OwnImages:
		if !aliasForm.MatchString(rest) {
			c.bad(at, "%s has no alias; add an alias of %s, like %s:my-image", quote(oneline.Address(ref)), of.Hypervisor, of.Type)
		} else if known && m.Type != of.Type {
			c.bad(at, "an image of %s's own cannot be used by a machine of type %s; use an image like debian/12", of.Hypervisor, m.Type)
		}
	case named && ref == UnknownImage(of.Type):
		if m.Type != of.Type {
			c.bad(at, "%s is the disk of a %s machine that was taken over; use an image like debian/12", quote(oneline.Address(ref)), of.Hypervisor)
		}
	case scheme == "simplestreams":
		if !simplestreamsForm.MatchString(rest) {
			c.bad(at, "%s is not a simplestreams reference; write simplestreams:SERVER/IMAGE, like simplestreams:images/debian/12", quote(oneline.Address(ref)))
		}
	case scheme == "file":
		c.imageFile(at, rest)
	case scheme == "https":
		c.imageURL(at, ref)
	case scheme == "http":
		c.bad(at, "images are not fetched over http:, where anyone on the way can change them; use https: or a file:")
	case imageColonForm.MatchString(ref):
		c.bad(at, "%s is not an image reference; did you mean %s?", quote(oneline.Address(ref)), quote(imageColonForm.ReplaceAllString(ref, "$1/$2")))
	case imageForm.MatchString(rest) && nameForm.MatchString(scheme):
		c.bad(at, "%s is not an image reference; did you mean %s?", quote(oneline.Address(ref)), quote("simplestreams:"+scheme+"/"+rest))
	default:
		c.bad(at, "%s is not an image reference; write OS/RELEASE like debian/12, file:/PATH#sha256=DIGEST, "+
			"https://HOST/PATH#sha256=DIGEST, %s or simplestreams:SERVER/IMAGE", quote(oneline.Address(ref)), ownSchemes(":ALIAS", ", "))
	}
}

func (c *checker) imageFile(at, rest string) {
	file, _, _ := strings.Cut(rest, "#")
	switch {
	case !path.IsAbs(file):
		c.bad(at, "%s is not an absolute path; write file:/PATH#sha256=DIGEST", quote(file))
	case path.Clean(file) != file || file == "/":
		c.bad(at, "%s is not the plain path of a file; write file:%s#sha256=DIGEST", quote(file), shorten(path.Clean(file)))
	default:
		c.digest(at, rest, "sha256sum "+file)
	}
}

func (c *checker) imageURL(at, ref string) {
	u, err := url.Parse(ref)
	switch {
	case err != nil || u.Host == "" || u.Path == "" || u.Path == "/":
		c.bad(at, "%s is not the address of a file; write https://HOST/PATH#sha256=DIGEST", quote(oneline.Address(ref)))
	case u.User != nil:
		c.bad(at, "an address with a user name or password cannot be used for an image; serve the file without a login")
	default:
		c.digest(at, ref, "sha256sum FILE")
	}
}

// digest checks the digest at the end of a reference. Messages show command as
// the command that prints the digest.
func (c *checker) digest(at, ref, command string) {
	_, fragment, found := strings.Cut(ref, "#")
	digest, isSHA256 := strings.CutPrefix(fragment, "sha256=")
	switch {
	case !found || fragment == "":
		c.bad(at, "the digest is missing; add #sha256= and the 64 digits that %q prints", command)
	case !isSHA256:
		c.bad(at, "%s is not a digest; write #sha256= and the 64 digits that %q prints", quote("#"+fragment), command)
	case digestForm.MatchString(digest):
	case digestForm.MatchString(strings.ToLower(digest)):
		c.bad(at, "write the digest in lower case: sha256=%s", strings.ToLower(digest))
	default:
		c.bad(at, "the digest has %d characters; a sha256 has 64 of 0-9 and a-f, as %q prints them", len(digest), command)
	}
}
