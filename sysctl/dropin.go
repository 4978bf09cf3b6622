package sysctl

import (
	"maps"
	"slices"
	"strings"
)

const header = "# Kernel parameters that hostler needs. hostler rewrites this file; put your\n# own settings into another file of this folder.\n"

// render returns the new text of the sysctl.d file. It consists of the header,
// the old lines about foreign parameters, and our parameters sorted by name.
// before lists the parameters that were ours until now. If there are neither
// such lines nor parameters of ours, the text is "".
func render(old string, before []string, ours map[string]string) string {
	var foreign, own strings.Builder
	for line := range strings.Lines(strings.TrimPrefix(old, header)) {
		name := lineName(line)
		if name == "" && strings.TrimSpace(line) == "" {
			continue
		}
		if _, now := ours[name]; !now && !slices.Contains(before, name) {
			foreign.WriteString(strings.TrimRight(line, "\n") + "\n")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		own.WriteString(name + " = " + ours[name] + "\n")
	}
	if foreign.Len()+own.Len() == 0 {
		return ""
	}
	return header + foreign.String() + own.String()
}

// lineName returns the parameter's name from a line of a sysctl.d file, or ""
// for a comment or an unreadable line. If the first separator is a dot, dots
// and slashes are swapped (sysctl.d(5)), e.g. net.ipv4.ip_forward becomes
// net/ipv4/ip_forward.
func lineName(line string) string {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' || line[0] == ';' {
		return ""
	}
	name, _, found := strings.Cut(line, "=")
	if !found {
		return ""
	}
	name = strings.TrimSpace(strings.TrimPrefix(name, "-"))
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '.' {
		name = strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, name)
	}
	return name
}
