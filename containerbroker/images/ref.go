package images

import (
	"net/url"
	"path"
	"regexp"
	"strings"

	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// Kind is the form of a reference.
type Kind string

// The kinds of reference.
const (
	// kindName is os/release[/variant], e.g. debian/12, which is looked up in
	// the configured sources.
	kindName Kind = "name"
	// kindFile is file:/path#sha256=HEX, a file of this host.
	kindFile Kind = "file"
	// kindHTTPS is https://host/path#sha256=HEX, a file on a web server.
	kindHTTPS Kind = "https"
	// kindLXD is lxd:ALIAS, an alias in the LXD daemon's own store. kindIncus
	// is incus:ALIAS, an alias in the Incus daemon's own store.
	kindLXD   Kind = "lxd"
	kindIncus Kind = "incus"
	// kindSimplestreams is simplestreams:SERVER/ALIAS, where ALIAS is an alias
	// of a product on the server, such as debian/12.
	kindSimplestreams Kind = "simplestreams"
)

// own reports whether references of this kind name images in a daemon's own
// store.
func (k Kind) own() bool { return k == kindLXD || k == kindIncus }

// daemon returns the name of the daemon whose images the kind names, and its
// command line client.
func (k Kind) daemon() (name, command string) {
	if k == kindIncus {
		return "Incus", "incus"
	}
	return "LXD", "lxc"
}

// Ref is a parsed image reference. String returns the original text.
type Ref struct {
	Kind Kind
	// Name is os/release[/variant], or the alias on a simplestreams server.
	Name string
	// Server is the configured simplestreams server's name.
	Server string
	// Location is the absolute path, the URL without its fragment, or the
	// alias of a daemon.
	Location string
	// Digest is the pinned hex sha256 of a file or URL.
	Digest string
}

// maxRef bounds a reference's length in bytes.
const maxRef = 2048

var (
	namePattern   = regexp.MustCompile(`^[a-z][a-z0-9.-]*/[a-z0-9][a-z0-9.-]*(/[a-z0-9][a-z0-9.-]*)?$`)
	serverPattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	aliasPattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:+-]*$`)
	digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ParseRef parses an image reference. Its errors are fault.Invalid.
func ParseRef(s string) (Ref, error) {
	bad := func(why string) (Ref, error) {
		return Ref{}, fault.New(fault.Invalid, "cannot use image %q: %s", clip(oneline.Address(s)), why)
	}
	if s == "" {
		return bad("the reference is empty")
	}
	if len(s) > maxRef {
		return bad("the reference is longer than 2048 bytes")
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return bad("control characters and broken UTF-8 are not allowed")
		}
	}
	before, rest, _ := strings.Cut(s, ":")
	scheme := Kind(before)
	switch {
	case strings.HasPrefix(s, "file:"):
		location, digest, ok := cutDigest(strings.TrimPrefix(s, "file:"))
		if !ok {
			return bad("it must end in #sha256= and 64 hex digits")
		}
		if !path.IsAbs(location) || path.Clean(location) != location || location == "/" {
			return bad("the path must be absolute and clean")
		}
		return Ref{Kind: kindFile, Location: location, Digest: digest}, nil
	case strings.HasPrefix(s, "https:"):
		location, digest, ok := cutDigest(s)
		if !ok {
			return bad("it must end in #sha256= and 64 hex digits")
		}
		u, err := url.Parse(location)
		if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") == "" {
			return bad("it is not an https URL of a file, without user")
		}
		return Ref{Kind: kindHTTPS, Location: location, Digest: digest}, nil
	case strings.HasPrefix(s, "http:"):
		return bad("plain http is not used, only https")
	case scheme == "docker" || scheme == "oci":
		return bad("OCI images hold application containers, and hostler runs system containers and virtual machines")
	case scheme.own():
		if !aliasPattern.MatchString(rest) {
			return bad(string(scheme) + ": must be followed by an alias")
		}
		return Ref{Kind: scheme, Location: rest}, nil
	case strings.HasPrefix(s, "simplestreams:"):
		server, name, _ := strings.Cut(strings.TrimPrefix(s, "simplestreams:"), "/")
		if !serverPattern.MatchString(server) || !aliasPattern.MatchString(name) {
			return bad("it must read simplestreams:SERVER/ALIAS")
		}
		return Ref{Kind: kindSimplestreams, Server: server, Name: name}, nil
	case namePattern.MatchString(s):
		return Ref{Kind: kindName, Name: s}, nil
	}
	return bad("it must be os/release[/variant], or begin with file:, https:, lxd:, incus: or simplestreams:")
}

// shown returns the reference for messages, without secrets.
func (r Ref) shown() string { return oneline.Address(r.String()) }

// String returns the reference as it was written.
func (r Ref) String() string {
	switch r.Kind {
	case kindFile:
		return "file:" + r.Location + "#sha256=" + r.Digest
	case kindHTTPS:
		return r.Location + "#sha256=" + r.Digest
	case kindLXD, kindIncus:
		return string(r.Kind) + ":" + r.Location
	case kindSimplestreams:
		return "simplestreams:" + r.Server + "/" + r.Name
	default:
		return r.Name
	}
}

// cutDigest splits #sha256=HEX off the end of s. ok is false if s has no such
// end.
func cutDigest(s string) (location, digest string, ok bool) {
	location, fragment, _ := strings.Cut(s, "#")
	digest, found := strings.CutPrefix(fragment, "sha256=")
	return location, digest, found && digestPattern.MatchString(digest)
}

// clip shortens a text to about 100 bytes, so that a hostile reference cannot
// fill a log.
func clip(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "…"
	}
	return s
}
