package images

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// aptSource is an entry of the host's apt sources.
type aptSource struct {
	uris, suites, components []string
	signedBy                 string
}

// distribution is a family of releases that share one archive.
type distribution struct {
	name       string // e.g. debian; its keyring is debian-archive-keyring
	os         string
	components string
	// suites are the suites that a host's sources for this distribution may
	// name.
	suites []string
	// setting is the name of hostler's setting for the mirror, and configured
	// returns its value.
	setting    string
	configured func(Mirrors) string
	// joint is true if the main archive also has the security updates.
	joint   bool
	keyring string // the package with the distribution's keys
}

var (
	debianArchive = distribution{
		name: "debian", os: "Debian", components: "main", setting: "apt.mirror", keyring: "debian-archive-keyring",
		suites:     []string{"bullseye", "bookworm", "trixie", "forky", "oldoldstable", "oldstable", "stable", "testing", "sid", "unstable"},
		configured: func(m Mirrors) string { return m.Debian },
	}
	ubuntuArchive = distribution{
		name: "ubuntu", os: "Ubuntu", components: "main universe", setting: "apt.ubuntu-mirror", keyring: "ubuntu-keyring",
		suites:     []string{"jammy", "noble", "questing", "resolute"},
		configured: func(m Mirrors) string { return m.Ubuntu }, joint: true,
	}
)

// archives are the addresses of a distribution's main archive and of its
// security archive, which is "" if it is not known. form is an apt source with
// the verbs for an address and a suite.
type archives struct{ main, security, form string }

// lines returns the apt sources of an image of the given release.
func (a archives) lines(suite string) []string {
	lines := []string{fmt.Sprintf(a.form, a.main, suite), fmt.Sprintf(a.form, a.main, suite+"-updates")}
	if a.security != "" {
		lines = append(lines, fmt.Sprintf(a.form, a.security, suite+"-security"))
	}
	return lines
}

// archives returns the archives of the configured mirror, or else of the host's
// own sources.
func (d distribution) archives(aptDir string, m Mirrors) (archives, error) {
	entries, err := readAptSources(aptDir)
	if err != nil {
		return archives{}, err
	}
	main, security := d.configured(m), ""
	own, found, err := d.hostMirrors(entries)
	switch base, ok := strings.CutSuffix(strings.TrimSuffix(main, "/"), "/debian"); {
	case main == "" && err != nil:
		return archives{}, err
	case main == "" && own == "":
		return archives{}, fault.New(fault.NeedsOperator, "%s has no %s mirror; set %s in hostler's configuration", aptDir, d.os, d.setting)
	case main == "":
		main, security = own, found
	case ok && !d.joint:
		security = base + "/debian-security"
	}
	if d.joint {
		security = cmp.Or(security, main)
	}
	for _, uri := range []string{main, security} {
		if strings.ContainsAny(uri, " \t\n[]") || uri != "" && !isWeb(uri) {
			return archives{}, fault.New(fault.NeedsOperator, "the mirror %q is not an http or https address", uri)
		}
	}
	// A host trusts the keys of its own distribution, and perhaps the key of a
	// private mirror. So only the sources of another distribution name a
	// keyring, which the image has at the same path.
	form := "deb %s %s " + d.components
	if ubuntu, _, _ := ubuntuArchive.hostMirrors(entries); own == "" && (d.name != debianArchive.name || ubuntu != "") {
		form = "deb [signed-by=/usr/share/keyrings/" + d.name + "-archive-keyring.gpg] %s %s " + d.components
	}
	return archives{main, security, form}, nil
}

// hostMirrors finds the distribution's archive and its security archive among
// the host's sources, or returns "" for an archive that is missing. Other
// vendors use suites of the same names. So an entry must also have the
// component main and name no keys except the distribution's. It returns
// fault.NeedsOperator if such an entry names an unusable list of mirrors.
func (d distribution) hostMirrors(entries []aptSource) (main, security string, err error) {
	for _, e := range entries {
		if !slices.Contains(e.components, "main") || e.signedBy != "" && !strings.Contains(e.signedBy, d.name+"-archive") {
			continue
		}
		for _, suite := range e.suites {
			base, isSecurity := strings.CutSuffix(suite, "-security")
			archive := &main
			if isSecurity {
				archive = &security
			}
			if *archive != "" || !slices.Contains(d.suites, base) {
				continue
			}
			if *archive, err = d.mirrorOf(e.uris); err != nil {
				return main, security, err
			}
		}
	}
	return main, security, nil
}

// mirrorOf returns the first http or https address among the URIs of an apt
// source and in the lists of mirrors that they name, or "" if there is none.
func (d distribution) mirrorOf(uris []string) (string, error) {
	for _, uri := range uris {
		if isWeb(uri) {
			return uri, nil
		}
		list, err := url.Parse(uri)
		if err != nil || list.Scheme != "mirror+file" {
			continue
		}
		data, err := os.ReadFile(list.Path)
		if err != nil {
			return "", fault.New(fault.NeedsOperator, "cannot read apt's list of mirrors: %v; mend it, or set %s in hostler's configuration", err, d.setting)
		}
		// A line has an address and, after a tab, its properties, see
		// apt-transport-mirror(1).
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); isWeb(line) {
				return strings.Fields(line)[0], nil
			}
		}
		return "", fault.New(fault.NeedsOperator, "%s has no http or https address of a mirror; add one, or set %s in hostler's configuration", list.Path, d.setting)
	}
	return "", nil
}

func isWeb(uri string) bool {
	return strings.HasPrefix(uri, "http://") || strings.HasPrefix(uri, "https://")
}

// readAptSources reads sources.list and sources.list.d, whose format is in
// sources.list(5).
func readAptSources(aptDir string) ([]aptSource, error) {
	files := []string{filepath.Join(aptDir, "sources.list")}
	dir, err := os.ReadDir(filepath.Join(aptDir, "sources.list.d"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read apt sources: %w", err)
	}
	for _, f := range dir {
		files = append(files, filepath.Join(aptDir, "sources.list.d", f.Name()))
	}
	var all []aptSource
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read apt sources: %w", err)
		}
		switch filepath.Ext(file) {
		case ".list":
			all = append(all, parseAptLines(string(data))...)
		case ".sources":
			all = append(all, parseDeb822(string(data))...)
		}
	}
	return all, nil
}

// parseAptLines parses lines of the form "deb [options] uri suite components".
func parseAptLines(text string) []aptSource {
	var all []aptSource
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")), "deb ")
		if !ok {
			continue
		}
		var s aptSource
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			options, after, closed := strings.Cut(rest[1:], "]")
			if !closed {
				continue
			}
			for option := range strings.FieldsSeq(options) {
				if by, ok := strings.CutPrefix(strings.ToLower(option), "signed-by="); ok {
					s.signedBy = by
				}
			}
			rest = after
		}
		fields := strings.Fields(rest)
		if len(fields) < 3 {
			continue // a suite that ends in a slash has no components and is never Debian's
		}
		s.uris, s.suites, s.components = fields[:1], fields[1:2], fields[2:]
		all = append(all, s)
	}
	return all
}

// parseDeb822 parses the deb822 form, which has a paragraph of fields for each
// source.
func parseDeb822(text string) []aptSource {
	var all []aptSource
	fields := map[string]string{}
	flush := func() {
		enabled := strings.ToLower(strings.TrimSpace(fields["enabled"]))
		if slices.Contains(strings.Fields(fields["types"]), "deb") && enabled != "no" && enabled != "false" {
			all = append(all, aptSource{
				uris: strings.Fields(fields["uris"]), suites: strings.Fields(fields["suites"]),
				components: strings.Fields(fields["components"]), signedBy: strings.TrimSpace(fields["signed-by"]),
			})
		}
		fields = map[string]string{}
	}
	last := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			flush()
			last = ""
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				fields[last] += " " + strings.TrimSpace(line)
			}
		default:
			name, value, _ := strings.Cut(line, ":")
			last = strings.ToLower(strings.TrimSpace(name))
			fields[last] = value
		}
	}
	flush()
	return all
}
