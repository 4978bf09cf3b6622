// Package resolvconf reads the host's DNS configuration.
package resolvconf

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Resolvers is the host's DNS configuration.
type Resolvers struct {
	// Servers are the name servers of the host that guests can reach too.
	Servers []netip.Addr
	// Search are the domains in which the host looks up short names.
	Search []string
	// Local is true if the host queries a server on the host itself. Our DHCP
	// servers can forward queries to this server.
	Local bool
}

// Read reads resolv.conf. If resolv.conf names no domains or no servers that
// guests can reach, e.g. only systemd-resolved's stub on the host, Read takes
// these from systemd-resolved's own list.
func Read(root string) Resolvers {
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

// searchLimit limits the total length of the search domains in bytes, because a
// DHCP option holds at most 255 bytes.
const searchLimit = 200

// domains returns the fields that are valid search domains for guests.
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
