package persist

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"hostler/internal/fault"
)

// nmDir holds NetworkManager's profiles (nm-settings-keyfile(5)). NetworkManager
// ignores a profile that another user than root may read.
const nmDir = "etc/NetworkManager/system-connections"

// nmDirs lists all folders of profiles.
var nmDirs = []string{nmDir, "run/NetworkManager/system-connections", "usr/lib/NetworkManager/system-connections"}

// nmDevices holds NetworkManager's records of links, by the kernel's numbers.
const nmDevices = "run/NetworkManager/devices"

func profileFile(link string) string { return "/05-hostler-" + link + ".nmconnection" }

// profileID returns the uuid of our profile for a link.
func profileID(namespace, link string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("hostler:"+namespace+"/"+link)).String()
}

// index returns the kernel's number of a link, or 0.
func index(root, link string) int {
	text, _ := os.ReadFile(filepath.Join("/", root, "sys/class/net", link, "ifindex"))
	number, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return number
}

// device returns NetworkManager's record of a link, or nil.
func device(root, link string) map[string]string {
	return keyValues(filepath.Join("/", root, nmDevices, strconv.Itoa(index(root, link))))
}

// profile returns the administrator's profile with the uuid. The error says why no
// profile of a bridge can be derived from it.
func profile(root, id string) ([]section, error) {
	if id == "" {
		return nil, errors.New("it has no active profile")
	}
	for _, dir := range nmDirs {
		files, _ := filepath.Glob(filepath.Join("/", root, dir, "*"))
		for _, path := range files {
			text, _ := os.ReadFile(path)
			s := parse(string(text))
			if get(s, "connection", "uuid") != id {
				continue
			}
			if kind := get(s, "connection", "type"); kind != "ethernet" && kind != "802-3-ethernet" {
				return nil, fmt.Errorf("its profile is of the type %s", kind)
			}
			if get(s, ".nmmeta", "external") == "true" {
				return nil, errors.New("another program has configured it")
			}
			return s, nil
		}
	}
	return nil, errors.New("its profile is not in a file")
}

// get returns the value of a key, or "".
func get(all []section, name, key string) (value string) {
	for _, line := range linesOf(all, name) {
		if k, v, _ := strings.Cut(line, "="); strings.TrimSpace(k) == key {
			value = strings.TrimSpace(v)
		}
	}
	return value
}

func linesOf(all []section, name string) (lines []string) {
	for _, s := range all {
		if s.name == name {
			lines = append(lines, s.lines...)
		}
	}
	return lines
}

// The parts of the NIC's profile that the profiles of the bridge and of its port
// take over. Other keys of [connection] belong to a profile itself.
var (
	bridgeKeys = []string{"stable-id", "zone", "metered", "mdns", "llmnr", "dns-over-tls", "secondaries"}
	portParts  = []string{"ethernet", "802-3-ethernet", "802-1x", "ethtool", "link", "sriov", "tc", "dcb"}
)

// networkManagerFiles returns the profile of the bridge, which takes over the
// addressing of the NIC's profile, and the profile that puts the NIC under the
// bridge. Once these exist, they are derived from themselves, because
// NetworkManager's users change the active profile, i.e. ours. Since
// NetworkManager then drops comments, the section [user] repeats the mark.
func networkManagerFiles(root string, b Bridge) (map[string]string, error) {
	record := b.paused
	if record == nil {
		record = keyValues(filepath.Join("/", root, nmDevices, fmt.Sprint(b.Index)))
	}
	bridge, port := nmDir+profileFile(b.Name), nmDir+profileFile(b.NIC)
	up, down := ownProfile(root, bridge, b), ownProfile(root, port, b)
	if m, ours := inForce(root, b.NIC); ours && m.namespace == b.Namespace && m.bridge != b.Name {
		// The NIC comes from another bridge, which has its addressing.
		from := Bridge{Name: m.bridge, Namespace: m.namespace, NIC: m.nic}
		if up == nil {
			up = ownProfile(root, nmDir+profileFile(m.bridge), from)
		}
		if down == nil {
			down = ownProfile(root, port, from)
		}
	}
	origin := cmp.Or(get(up, "user", "hostler.origin"), record["origin"], record["connection-uuid"])
	if up != nil {
		record = nil
	}
	if up == nil || down == nil {
		theirs, err := profile(root, origin)
		if err != nil {
			return nil, fault.New(fault.NeedsOperator, "cannot make bridge %s persistent: NetworkManager configures %s, and %v; the agent makes the bridge again at each start", b.Name, b.NIC, err)
		}
		if up == nil {
			up = theirs
		}
		if down == nil {
			down = theirs
		}
	}
	user := []string{"hostler.mark=" + strings.TrimSpace(b.mark()), "hostler.origin=" + origin}
	declared := added(up, b)
	// The port's activation activates the bridge. By itself, NetworkManager would make
	// the bridge again while the agent removes it.
	connection := []string{"id=hostler-" + b.Name, "uuid=" + profileID(b.Namespace, b.Name), "type=bridge", "interface-name=" + b.Name, "autoconnect=false"}
	for _, key := range bridgeKeys {
		value := get(up, "connection", key)
		if key == "stable-id" {
			value = cmp.Or(value, origin) // the default is the profile's uuid
		}
		if value != "" {
			connection = append(connection, key+"="+value)
		}
	}
	ethernet := []string{"cloned-mac-address=" + b.MAC}
	if b.MTU != 0 {
		ethernet = append(ethernet, fmt.Sprint("mtu=", b.MTU))
	}
	var over, under strings.Builder
	over.WriteString(b.mark())
	writeSection(&over, "connection", connection)
	writeSection(&over, "user", append(slices.Clone(user), "hostler.addresses="+strings.Join(declared, " ")))
	writeSection(&over, "ethernet", ethernet)
	writeSection(&over, "bridge", []string{"stp=false"})
	for _, family := range []string{"ipv4", "ipv6"} {
		writeSection(&over, family, addressing(up, family, record, declared))
	}
	writeSection(&over, "proxy", linesOf(up, "proxy"))
	under.WriteString(b.mark())
	writeSection(&under, "connection", []string{
		"id=hostler-" + b.NIC, "uuid=" + profileID(b.Namespace, b.NIC), "type=ethernet", "interface-name=" + b.NIC, "autoconnect-priority=999",
		// The names of these keys before NetworkManager 1.46, which all releases know.
		"master=" + profileID(b.Namespace, b.Name), "slave-type=bridge",
	})
	writeSection(&under, "user", user)
	for _, name := range portParts {
		writeSection(&under, name, linesOf(down, name))
	}
	// udev sets the bridge's stamp.
	return map[string]string{bridge: over.String(), port: under.String(), networkdDir + "/05-hostler-" + b.Name + ".link": linkFile(b)}, nil
}

// ownProfile returns our profile in a file, or nil. It returns nil for a profile of
// another bridge or NIC.
func ownProfile(root, name string, b Bridge) []section {
	text, err := os.ReadFile(filepath.Join("/", root, name))
	if err != nil || !strings.Contains(string(text), b.mark()) {
		return nil
	}
	return parse(string(text))
}

// isAdded reports whether a line has a declared address that hostler has added to the
// profile. NetworkManager numbers the keys anew when it writes a profile.
func isAdded(all []section, line string) bool {
	value, is := addressIn(line)
	return is && slices.Contains(strings.Fields(get(all, "user", "hostler.addresses")), value)
}

// addressIn returns the address in a line such as address1=192.0.2.1/24,192.0.2.254.
func addressIn(line string) (address string, is bool) {
	key, value, _ := strings.Cut(line, "=")
	number, is := strings.CutPrefix(strings.TrimSpace(key), "address")
	_, err := strconv.Atoi(cmp.Or(number, "0"))
	value, _, _ = strings.Cut(value, ",")
	return strings.TrimSpace(value), is && err == nil
}

// added returns the declared addresses that the administrator's profile has not.
func added(all []section, b Bridge) (addresses []string) {
	theirs := func(address string) bool {
		return slices.ContainsFunc(append(linesOf(all, "ipv4"), linesOf(all, "ipv6")...), func(line string) bool {
			value, is := addressIn(line)
			return is && value == address && !isAdded(all, line)
		})
	}
	for _, a := range b.Addresses {
		if !theirs(a.String()) {
			addresses = append(addresses, a.String())
		}
	}
	return addresses
}

// firstAdded is the number of the key of the first added address.
const firstAdded = 1000

// endless is the time for which NetworkManager waits for a DHCP server or a router, in
// seconds. After a shorter one it deletes the bridge, and the guests are cut off.
const endless = "2147483647"

// addressing returns the section ipv4 or ipv6 of the bridge's profile. record is
// NetworkManager's record of the NIC, with its metric of routes and its identifier for
// DHCP servers, which otherwise depend on the type or name of the link.
func addressing(all []section, family string, record map[string]string, declared []string) (lines []string) {
	method, bears := cmp.Or(get(all, family, "method"), "auto"), false
	for _, line := range linesOf(all, family) {
		key, _, _ := strings.Cut(line, "=")
		if strings.TrimSpace(key) == "method" || isAdded(all, line) {
			continue
		}
		_, is := addressIn(line)
		bears = bears || is
		lines = append(lines, line)
	}
	add := func(key, value string) {
		if value != "" && get(all, family, key) == "" {
			lines = append(lines, key+"="+value)
		}
	}
	add("route-metric", record["route-metric-default-effective"])
	if family == "ipv4" {
		add("dhcp-client-id", record["dhcp4.dhcp_client_identifier"])
	}
	if method == "auto" || method == "dhcp" {
		add("dhcp-timeout", endless)
		if family == "ipv6" {
			add("ra-timeout", endless)
		}
	}
	for i, address := range declared {
		if strings.Contains(address, ":") == (family == "ipv6") {
			lines, bears = append(lines, fmt.Sprintf("address%d=%s", firstAdded+i, address)), true
		}
	}
	switch {
	case bears && slices.Contains([]string{"disabled", "ignore", "link-local"}, method):
		method = "manual"
	case !bears && method == "manual":
		method = "disabled"
	}
	return append(lines, "method="+method)
}
