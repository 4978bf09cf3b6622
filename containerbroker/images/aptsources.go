package images

import (
	"errors"
	"fmt"
	"io/fs"
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

// debianLines returns the apt sources of an image of the given release: from
// the configured mirrors, or else from the host's own sources.
func debianLines(aptDir, codename string, m Mirrors) ([]string, error) {
	main, security := m.Debian, m.Security
	if main == "" {
		entries, err := readAptSources(aptDir)
		if err != nil {
			return nil, err
		}
		var found string
		main, found = hostMirrors(entries)
		if main == "" {
			return nil, fault.New(fault.NeedsOperator,
				"%s has no Debian mirror; set apt.mirror in hostler's configuration", aptDir)
		}
		if security == "" {
			security = found
		}
	} else if base, ok := strings.CutSuffix(strings.TrimSuffix(main, "/"), "/debian"); ok && security == "" {
		security = base + "/debian-security"
	}
	lines := []string{
		fmt.Sprintf("deb %s %s main", main, codename),
		fmt.Sprintf("deb %s %s-updates main", main, codename),
	}
	if security != "" {
		lines = append(lines, fmt.Sprintf("deb %s %s-security main", security, codename))
	}
	for _, uri := range []string{main, security} {
		if strings.ContainsAny(uri, " \t\n[]") || uri != "" && !isWeb(uri) {
			return nil, fault.New(fault.NeedsOperator, "the mirror %q is not an http or https address", uri)
		}
	}
	return lines, nil
}

// debianSuites are the suite names that Debian's own entries may use.
var debianSuites = []string{
	"bullseye", "bookworm", "trixie", "forky", "oldoldstable", "oldstable", "stable", "testing", "sid", "unstable",
}

// hostMirrors finds Debian's archive and its security archive among the host's
// sources. Other vendors use suites of the same names too; so an entry also
// needs the component main and no keys but Debian's.
func hostMirrors(entries []aptSource) (main, security string) {
	for _, e := range entries {
		if !slices.Contains(e.components, "main") || e.signedBy != "" && !strings.Contains(e.signedBy, "debian-archive") {
			continue
		}
		i := slices.IndexFunc(e.uris, isWeb)
		if i < 0 {
			continue
		}
		for _, suite := range e.suites {
			base, isSecurity := strings.CutSuffix(suite, "-security")
			if !slices.Contains(debianSuites, base) {
				continue
			}
			if isSecurity && security == "" {
				security = e.uris[i]
			}
			if !isSecurity && main == "" {
				main = e.uris[i]
			}
		}
	}
	return main, security
}

func isWeb(uri string) bool {
	return strings.HasPrefix(uri, "http://") || strings.HasPrefix(uri, "https://")
}

// readAptSources reads sources.list and sources.list.d as in sources.list(5).
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

// parseAptLines parses the one-line form: deb [options] uri suite components.
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
			continue // a suite ending in a slash has no components, and is not Debian's
		}
		s.uris, s.suites, s.components = fields[:1], fields[1:2], fields[2:]
		all = append(all, s)
	}
	return all
}

// parseDeb822 parses the deb822 form: paragraphs of fields.
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
