package networkprovisioner

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Resolvers is how the host finds names.
type Resolvers struct {
	// Servers are the name servers that the host asks, without those that only
	// the host itself can ask (B5).
	Servers []netip.Addr
	// Search are the domains in which the host looks for short names.
	Search []string
	// Local: the host asks a server on itself, which a DHCP server of ours can
	// pass questions to.
	Local bool
}

// resolvers reads resolv.conf and, for servers or domains that it does not
// name, systemd-resolved's own list: its resolv.conf may name only a stub on
// the host itself.
func resolvers(root string) Resolvers {
	var r Resolvers
	for _, path := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		data, err := os.ReadFile(filepath.Join("/", root, path))
		if err != nil {
			continue
		}
		servers, search := r.Servers, r.Search
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			if len(fields) < 2 {
				continue
			}
			switch fields[0] {
			case "nameserver":
				a, err := netip.ParseAddr(fields[1])
				if err != nil || a.Zone() != "" {
					continue
				}
				if a.IsLoopback() {
					r.Local = r.Local || path == "/etc/resolv.conf"
				} else {
					servers = append(servers, a)
				}
			case "search", "domain":
				search = domains(fields[1:]) // the last line counts, resolv.conf(5)
			}
		}
		if len(r.Servers) == 0 {
			r.Servers = servers
		}
		if len(r.Search) == 0 {
			r.Search = search
		}
	}
	return r
}

// searchLimit bounds the search domains, in bytes: one option of DHCP holds
// 255.
const searchLimit = 200

// domains are those of the fields that guests can be given.
func domains(fields []string) []string {
	var all []string
	size := 0
	for _, d := range fields {
		if strings.HasPrefix(d, "#") || strings.HasPrefix(d, ";") {
			break
		}
		d = strings.TrimSuffix(d, ".")
		if !isDomain(d) || slices.Contains(all, d) {
			continue
		}
		if size += len(d) + 2; size > searchLimit {
			break
		}
		all = append(all, d)
	}
	return all
}

func isDomain(d string) bool {
	for label := range strings.SplitSeq(d, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "-") != label || strings.ContainsFunc(label, func(c rune) bool {
			return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
		}) {
			return false
		}
	}
	return true
}

// unresolved is a notice that guests find no names, because the host names no
// server that they can ask; "" where they do.
func unresolved(d Desired, p Plan, r Resolvers) string {
	if len(r.Servers) > 0 {
		return ""
	}
	var names []string
	mend, serve := "name a server in /etc/resolv.conf or, with systemd-resolved, as DNS= in /etc/systemd/resolved.conf", false
	for i, planned := range p.Networks {
		switch {
		case !planned.On, planned.Is.DHCP && (r.Local || !forwards(planned.Is)), !planned.Is.DHCP && len(planned.Gateways) == 0:
			continue
		case !planned.Is.DHCP && r.Local && len(planned.Is.Interfaces) == 0:
			serve = true
		}
		names = append(names, d.Networks[i].Name)
	}
	if len(names) == 0 {
		return ""
	}
	if serve {
		mend += ", or declare `dhcp: true` for the network, whose server asks the host's own"
	}
	have := "the host names no name server"
	if r.Local {
		have = "the host names no name server but itself"
	}
	return fmt.Sprintf("guests on the network %s find no names: %s; %s", strings.Join(names, ", "), have, mend)
}
