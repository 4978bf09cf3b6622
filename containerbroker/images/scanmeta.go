package images

import (
	"archive/tar"
	"io"
	"regexp"
	"slices"
	"strings"

	"hostler/internal/strictyaml"
)

// metadata is metadata.yaml of an LXD image, with the keys of LXD's documented
// image format.
type metadata struct {
	Architecture string              `yaml:"architecture"`
	Created      int64               `yaml:"creation_date"`
	Expires      int64               `yaml:"expiry_date,omitempty"`
	Properties   map[string]string   `yaml:"properties,omitempty"`
	Templates    map[string]template `yaml:"templates,omitempty"`
}

// template describes when LXD fills a template file and into which target.
type template struct {
	When       []string          `yaml:"when"`
	CreateOnly bool              `yaml:"create_only"`
	Template   string            `yaml:"template"`
	Properties map[string]string `yaml:"properties,omitempty"`
}

var (
	tplPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}\.tpl$`)
	// tplTag finds the statements of LXD's template language. tplAllowed are
	// the accepted statements. They neither read files nor loop.
	tplTag     = regexp.MustCompile(`\{%[-+]?\s*([A-Za-z_]*)`)
	tplAllowed = []string{"if", "elif", "else", "endif"}
	// templateTargets are the files that an image is allowed to let LXD write.
	templateTargets = []string{
		"/etc/hostname", "/etc/hosts", "/etc/network/interfaces",
		"/var/lib/cloud/seed/nocloud-net/meta-data", "/var/lib/cloud/seed/nocloud-net/user-data",
		"/var/lib/cloud/seed/nocloud-net/vendor-data", "/var/lib/cloud/seed/nocloud-net/network-config",
	}
	templateTimes = []string{"create", "copy", "start"}
)

// lxdArchs maps Debian's architecture names to the kernel's, which LXD uses.
var lxdArchs = map[string]string{
	"amd64": "x86_64", "arm64": "aarch64", "armhf": "armv7l", "i386": "i686",
	"ppc64el": "ppc64le", "s390x": "s390x", "riscv64": "riscv64",
}

func (w *tarWalk) takeMetadata(h *tar.Header, body io.Reader) error {
	data, err := document(h, "metadata.yaml", body)
	if err != nil {
		return err
	}
	w.metadata, err = parseMetadata(data)
	return err
}

func (w *tarWalk) takeTemplate(h *tar.Header, name string, body io.Reader) error {
	if !tplPattern.MatchString(name) {
		return refuse("the template %q has a name that is not allowed", clip(name))
	}
	if len(w.tpl) == maxTemplate {
		return refuse("it has more than %d templates", maxTemplate)
	}
	data, err := document(h, "templates/"+name, body)
	if err != nil {
		return err
	}
	for _, tag := range tplTag.FindAllSubmatch(data, -1) {
		if !slices.Contains(tplAllowed, string(tag[1])) {
			return refuse("the template %q uses the statement %q", name, tag[1])
		}
	}
	w.tpl = append(w.tpl, name)
	return nil
}

// document returns the content of a regular file of at most maxDocument bytes,
// and refuses any other file.
func document(h *tar.Header, name string, body io.Reader) ([]byte, error) {
	if h.Typeflag != tar.TypeReg {
		return nil, refuse("%q is not a regular file", name)
	}
	if h.Size > maxDocument {
		return nil, refuse("%q has %d bytes, more than %d", name, h.Size, maxDocument)
	}
	return io.ReadAll(io.LimitReader(body, maxDocument))
}

// parseMetadata parses metadata.yaml strictly. It refuses unknown and repeated
// keys, and content that another parser could read differently.
func parseMetadata(data []byte) (*metadata, error) {
	var m metadata
	if err := strictyaml.Unmarshal(data, &m); err != nil {
		return nil, clean(err, "metadata.yaml cannot be read")
	}
	for target, t := range m.Templates {
		if !slices.Contains(templateTargets, target) {
			return nil, refuse("a template would write %q", clip(target))
		}
		if !tplPattern.MatchString(t.Template) {
			return nil, refuse("the template of %s has the name %q", target, clip(t.Template))
		}
		for _, when := range t.When {
			if !slices.Contains(templateTimes, when) {
				return nil, refuse("the template of %s is for the unknown time %q", target, clip(when))
			}
		}
	}
	return &m, nil
}

// finish makes the checks that need the whole archive.
func (w *tarWalk) finish() error {
	if w.metadata == nil {
		return refuse("it has no metadata.yaml")
	}
	if w.expect.Part == partUnified && w.seen["rootfs"] == 0 {
		return refuse("it has no rootfs")
	}
	for target, t := range w.metadata.Templates {
		if !slices.Contains(w.tpl, t.Template) {
			return refuse("the template of %s is missing", target)
		}
	}
	arch := w.metadata.Architecture
	if arch == "" || strings.ContainsAny(arch, " /\n") {
		return refuse("metadata.yaml names no architecture")
	}
	if want := w.expect.Arch; want != "" && arch != want && arch != lxdArchs[want] {
		return refuse("it is for %s and this host is %s", clip(arch), want)
	}
	return nil
}
