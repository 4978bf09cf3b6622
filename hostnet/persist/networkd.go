package persist

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Of all .network files that match a link, in all folders, networkd uses only
// the first by name (systemd.network(5)). The names of our files begin with 05,
// because the names of files from installers and netplan begin with 10.
const networkdDir = "etc/systemd/network"

// networkdDirs lists networkd's folders by precedence. If several folders
// contain a file of the same name, networkd reads only the first.
var networkdDirs = []string{"etc/systemd/network", "run/systemd/network", "usr/local/lib/systemd/network", "usr/lib/systemd/network"}

func ownFile(b Bridge) string { return "/05-hostler-" + b.NIC + ".network" }

// networkdFiles returns the files for the bridge and for the NIC under the
// bridge. The bridge takes over the administrator's configuration of the NIC,
// which is in file.
func networkdFiles(root, file string, b Bridge) (map[string]string, error) {
	sections, err := readUnit(root, file)
	if err != nil {
		return nil, fmt.Errorf("cannot make bridge %s persistent: cannot read the configuration of %s: %w", b.Name, b.NIC, err)
	}
	base := networkdDir + "/05-hostler-"
	device := b.mark() + fmt.Sprintf("[NetDev]\nName=%s\nKind=bridge\nMACAddress=%s\n", b.Name, b.MAC)
	if b.MTU != 0 {
		device += fmt.Sprintf("MTUBytes=%d\n", b.MTU)
	}
	device += "\n[Bridge]\nSTP=no\nForwardDelaySec=0\n"

	var nic, bridge strings.Builder
	head := b.mark() + origin + file + "\n"
	fmt.Fprintf(&nic, "%s[Match]\nName=%s\n", head, b.NIC)
	// systemd 257 takes a NIC that leaves a bridge for a new link, and configures it by this
	// file in the middle of our removal. It is to leave the addresses and routes alone.
	fmt.Fprintf(&nic, "\n[Network]\nBridge=%s\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nKeepConfiguration=yes\n", b.Name)
	fmt.Fprintf(&bridge, "%s[Match]\nName=%s\n", head, b.Name)
	for _, s := range sections {
		var up, down []string
		for _, line := range s.lines {
			key, _, _ := strings.Cut(line, "=")
			switch {
			case s.name == "Network" && slices.Contains(stacked, strings.TrimSpace(key)):
				// VLANs and other devices on the NIC stay on the NIC.
				down = append(down, line)
			case s.name == "Link" && slices.Contains([]string{"MACAddress", "MTUBytes"}, strings.TrimSpace(key)):
				down = append(down, line)
			default:
				up = append(up, line)
			}
		}
		writeSection(&nic, s.name, down)
		if s.name != "Match" {
			writeSection(&bridge, s.name, up)
		}
	}
	bridge.WriteString("\n[Network]\nConfigureWithoutCarrier=yes\n")
	for _, a := range b.Addresses {
		fmt.Fprintf(&bridge, "Address=%s\n", a)
	}
	if id := iaid(root, b, sections); id != "" {
		fmt.Fprintf(&bridge, "\n[DHCPv4]\nIAID=%[1]s\n\n[DHCPv6]\nIAID=%[1]s\n", id)
	}
	return map[string]string{
		base + b.Name + ".netdev":  device,
		base + b.Name + ".network": bridge.String(),
		base + b.NIC + ".network":  nic.String(),
		// udev sets the bridge's stamp (systemd.link(5)).
		base + b.Name + ".link": linkFile(b),
	}, nil
}

func linkFile(b Bridge) string {
	return b.mark() + fmt.Sprintf("[Match]\nOriginalName=%s\nKind=bridge\n\n[Link]\nAlias=%s\nMACAddressPolicy=none\n", b.Name, b.Stamp)
}

// iaid returns the IAID with which networkd leased the NIC's addresses, or "". With
// it, the bridge is the same client for the DHCP servers and keeps these addresses.
// networkd's own choice is a hash of the NIC's permanent name, which a bridge has
// not (systemd.network(5), IAID).
func iaid(root string, b Bridge, administrators []section) string {
	value := func(line string) (id string, is bool) {
		key, id, _ := strings.Cut(line, "=")
		return strings.TrimSpace(id), strings.TrimSpace(key) == "IAID"
	}
	for _, s := range administrators {
		for _, line := range s.lines {
			if _, is := value(line); is {
				return ""
			}
		}
	}
	// The NIC's lease is gone once our files are in force.
	ours, err := os.ReadFile(filepath.Join("/", root, networkdDir, "05-hostler-"+b.Name+".network"))
	if err == nil && strings.HasPrefix(string(ours), b.mark()) { // else it is for another NIC
		for line := range strings.Lines(string(ours)) {
			if id, is := value(line); is {
				return id
			}
		}
		return ""
	}
	// A client identifier of the type 255 has four bytes of an IAID, and a DUID
	// (RFC 4361, 6.1).
	client, err := hex.DecodeString(keyValues(filepath.Join("/", root, "run/systemd/netif/leases", fmt.Sprint(b.Index)))["CLIENTID"])
	if err != nil || len(client) < 5 || client[0] != 255 {
		return ""
	}
	return fmt.Sprint(binary.BigEndian.Uint32(client[1:]))
}

// stacked lists the keys of [Network] that put other devices on a link.
var stacked = []string{"VLAN", "MACVLAN", "MACVTAP", "IPVLAN", "VXLAN", "Tunnel"}

func writeSection(b *strings.Builder, name string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n[%s]\n%s\n", name, strings.Join(lines, "\n"))
	}
}

// section is a section of a unit file, without comments.
type section struct {
	name  string
	lines []string
}

// readUnit reads a .network file with its drop-ins.
func readUnit(root, file string) ([]section, error) {
	var sections []section
	base := filepath.Base(file)
	paths := []string{filepath.Join("/", root, file)}
	seen := map[string]string{}
	for _, dir := range networkdDirs {
		drops, _ := filepath.Glob(filepath.Join("/", root, dir, base+".d", "*.conf"))
		for _, path := range drops {
			if name := filepath.Base(path); seen[name] == "" {
				seen[name] = path
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		paths = append(paths, seen[name])
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		sections = append(sections, parse(strings.ReplaceAll(string(data), "\\\n", " "))...)
	}
	return sections, nil
}

func parse(text string) (sections []section) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			sections = append(sections, section{name: line[1 : len(line)-1]})
		case len(sections) > 0:
			last := &sections[len(sections)-1]
			last.lines = append(last.lines, line)
		}
	}
	return sections
}

// origin begins the second line of our .network files. The path of the
// administrator's file that ours is derived from follows.
const origin = "# from "

// personsFile returns the file that configured the NIC before ours did. If this
// file is gone, personsFile returns the next matching file. Only the recorded
// name is reliable, because networkd may have matched the NIC by e.g. its MAC
// address or type.
func personsFile(root, nic, own string) (string, error) {
	data, _ := os.ReadFile(filepath.Join("/", root, networkdDir, own)) // if missing, look for the next file
	if _, rest, ok := strings.Cut(string(data), "\n"+origin); ok {
		file, _, _ := strings.Cut(rest, "\n")
		if _, err := os.Stat(filepath.Join("/", root, file)); err == nil {
			return file, nil
		}
	}
	return nextFile(root, nic, own)
}

// nextFile returns the administrator's file that matches the NIC by name, or an
// fs.ErrNotExist error. It ignores our own file.
func nextFile(root, nic, own string) (string, error) {
	found := map[string]string{}
	for _, dir := range networkdDirs {
		paths, _ := filepath.Glob(filepath.Join("/", root, dir, "*.network"))
		for _, path := range paths {
			if name := filepath.Base(path); "/"+name != own && found[name] == "" {
				found[name] = filepath.Join("/", dir, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		sections, err := readUnit(root, found[name])
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("cannot find the configuration of %s: %w", nic, err)
		}
		for _, s := range sections {
			if s.name == "Match" && slices.ContainsFunc(s.lines, func(line string) bool { return matches(line, nic) }) {
				return found[name], nil
			}
		}
	}
	return "", fmt.Errorf("cannot find the configuration of %s: no .network file names it: %w", nic, fs.ErrNotExist)
}

// matches reports whether a line of a [Match] section names the NIC.
func matches(line, nic string) bool {
	key, patterns, _ := strings.Cut(line, "=")
	if strings.TrimSpace(key) != "Name" {
		return false
	}
	for pattern := range strings.FieldsSeq(patterns) {
		if ok, err := filepath.Match(pattern, nic); ok && err == nil {
			return true
		}
	}
	return false
}
