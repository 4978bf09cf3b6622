package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Everything that the agent may write, and where its tests and LXD keep
// things that no running daemon would tell of.
var watched = []string{
	"/etc/hostler", "/var/lib/hostler", "/run/hostler", "/var/cache/hostler", "/var/log/hostler",
	"/etc/sysctl.d/60-hostler.conf", "/etc/systemd/system/hostler*", "/tmp/hostler*", "/var/tmp/hostler*",
	"/etc/subuid", "/etc/subgid", "/etc/apt/apt.conf.d", "/etc/apt/sources.list.d",
}

var watchedNames = []string{
	"/var/lib/lxd/disks/*", "/var/lib/lxd/images/*", "/var/lib/lxd/storage-pools/*", "/var/lib/lxd/networks/*",
	"/var/lib/lxd/containers/*", "/var/lib/lxd/devices/*", "/var/log/lxd/*/*",
}

// Kernel parameters that hostler, LXD or a bridge may set.
var parameters = []string{
	"net/ipv4/ip_forward", "net/ipv4/conf/*/*", "net/ipv4/neigh/default/gc_thresh*", "net/ipv6/conf/*/*", "net/ipv6/neigh/default/gc_thresh*",
	"net/bridge/*", "net/core/netdev_max_backlog", "fs/inotify/*", "fs/aio-max-nr", "fs/file-max",
	"kernel/keys/*", "kernel/dmesg_restrict", "vm/max_map_count", "vm/swappiness",
}

// passing values move by themselves or cannot be read before they are set.
var passing = regexp.MustCompile(`stable_secret|kernel/keys/gc_delay`)

// Programs that must not outlive what started them.
var programs = regexp.MustCompile(`^(lxd|lxc|dnsmasq|hostler.*|qemu-.*|libvirtd|virtlogd|mmdebstrap|debootstrap|apt-get|dpkg|mksquashfs|unsquashfs|lxcfs|forkproxy|etcd|\[lxc monitor\])$`)

// take looks at everything. What cannot be asked (a tool that is not there,
// a daemon that is down) is written down as such, so that a change of that
// is a difference as well.
func take() Snapshot {
	s := Snapshot{
		"links":         lines(ask("ip", "-j", "-d", "link", "show"), ""),
		"addresses":     lines(ask("ip", "-j", "addr", "show"), ""),
		"routes":        lines(ask("ip", "-j", "route", "show", "table", "all"), ""),
		"rules":         lines(ask("ip", "-j", "rule", "show"), ""),
		"nftables":      rules(ask("nft", "-j", "list", "ruleset")),
		"loops":         lines(ask("losetup", "-J", "-l"), "loopdevices"),
		"mounts":        lines(ask("findmnt", "-J", "-l", "-o", "TARGET,SOURCE,FSTYPE"), "filesystems"),
		packagesClass:   strings.Split(string(ask("dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\n")), "\n"),
		"accounts":      accounts(),
		parametersClass: sysctls("/proc/sys"),
		"processes":     processes("/proc"),
		"listeners":     listeners(ask("ss", "-Hltn")),
		"lxc":           containers("/var/lib/lxc", "/sys/fs/cgroup", "/proc/net/unix"),
	}
	for _, pattern := range watched {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			s["files"] = append(s["files"], files(path)...)
		}
	}
	for _, pattern := range watchedNames {
		paths, _ := filepath.Glob(pattern)
		s["files"] = append(s["files"], paths...)
	}
	lxd(s)
	return s
}

// lxd asks the system's LXD for its objects.
func lxd(s Snapshot) {
	if ask("lxc", "query", "/1.0") == nil {
		s["lxd"] = []string{"does not answer"}
		return
	}
	s["lxd"] = []string{"answers", "configuration " + string(compact(ask("lxc", "query", "/1.0"), "config"))}
	for _, kind := range []string{"projects", "instances", "images", "profiles", "networks", "storage-pools"} {
		query := "/1.0/" + kind + "?recursion=1"
		if kind != "projects" && kind != "storage-pools" && kind != "networks" {
			query += "&all-projects=true"
		}
		s["lxd "+kind] = lines(ask("lxc", "query", query), "")
	}
	for _, pool := range names(ask("lxc", "query", "/1.0/storage-pools")) {
		s["lxd volumes"] = append(s["lxd volumes"], names(ask("lxc", "query", pool+"/volumes"))...)
	}
}

// ask runs a tool; nil when it is not there or fails.
func ask(tool string, args ...string) []byte {
	cmd := exec.Command(tool, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	return bytes.TrimSpace(out)
}

// moving are fields that change while nothing does.
var moving = map[string]bool{
	"handle": true, "metainfo": true, "packets": true, "bytes": true, "valid_life_time": true, "preferred_life_time": true,
	"last_used_at": true, "used_by": true, "ifindex": true, "link_index": true, "stats64": true, "expires": true,
	"num_queues": true, "gso_max_size": true, "operstate": true, "used": true, "promiscuity": true, "allmulti": true,
	"hello_timer": true, "tcn_timer": true, "topology_change_timer": true, "gc_timer": true, "topology_change": true,
	"topology_change_detected": true, "flags": true, "volatile.last_state.power": true,
}

// lines renders a JSON array (or that member of an object) as one compact
// line per element, without what moves by itself.
func lines(data []byte, member string) (out []string) {
	var elements []any
	if member != "" {
		var object map[string]json.RawMessage
		if json.Unmarshal(data, &object) != nil {
			return nil
		}
		data = object[member]
	}
	if json.Unmarshal(data, &elements) != nil {
		return nil
	}
	for _, element := range elements {
		if b, _ := json.Marshal(still(element)); string(b) != "{}" {
			out = append(out, string(b))
		}
	}
	return out
}

// rules lists the ruleset. LXD and Incus never remove their own tables; only the
// content of these tables counts.
func rules(ruleset []byte) []string {
	return slices.DeleteFunc(lines(ruleset, "nftables"), func(line string) bool { return emptyTable.MatchString(line) })
}

var emptyTable = regexp.MustCompile(`^\{"table":\{"family":"[a-z]+","name":"(lxd|incus)"\}\}$`)

func still(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if moving[key] {
				delete(v, key)
			} else {
				v[key] = still(inner)
			}
		}
	case []any:
		for i := range v {
			v[i] = still(v[i])
		}
	}
	return v
}

func compact(data []byte, member string) []byte {
	var object map[string]json.RawMessage
	_ = json.Unmarshal(data, &object)
	var b bytes.Buffer
	_ = json.Compact(&b, object[member])
	return b.Bytes()
}

func names(data []byte) (list []string) {
	_ = json.Unmarshal(data, &list)
	return list
}

// listeners are the local addresses that are listened on; ss pads its columns
// to what else it prints.
func listeners(text []byte) (out []string) {
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 3 {
			out = append(out, fields[3])
		}
	}
	return out
}

// hashed is the largest file that is read, in bytes.
const hashed = 64 << 20

// files lists a tree: path, mode, owner and a digest of the content.
func files(root string) (out []string) {
	_ = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		info, err := os.Lstat(path)
		if err != nil {
			return nil
		}
		line := fmt.Sprintf("%s %v", path, info.Mode())
		switch {
		case !info.Mode().IsRegular():
		case info.Size() > hashed:
			// The image of a disk: its size will do.
			line += fmt.Sprintf(" %d bytes", info.Size())
		default:
			b, _ := os.ReadFile(path)
			line += fmt.Sprintf(" %x", sha256.Sum256(b))
		}
		out = append(out, line)
		return nil
	})
	return out
}

func sysctls(root string) (out []string) {
	for _, pattern := range parameters {
		paths, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, path := range paths {
			name, _ := filepath.Rel(root, path)
			value, err := os.ReadFile(path)
			if err != nil || passing.MatchString(name) {
				continue
			}
			out = append(out, name+" = "+strings.TrimSpace(string(value)))
		}
	}
	return out
}

// processes lists the watched programs by their command lines, not their
// pids: a daemon may be restarted.
func processes(root string) (out []string) {
	comms, _ := filepath.Glob(filepath.Join(root, "[0-9]*", "comm"))
	for _, path := range comms {
		args, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err != nil || len(args) == 0 { // gone, a kernel thread or a zombie
			continue
		}
		argv := strings.Split(strings.TrimRight(string(args), "\x00"), "\x00")
		if program := filepath.Base(argv[0]); programs.MatchString(program) || strings.HasPrefix(argv[0], "[lxc monitor]") {
			out = append(out, strings.Join(argv, " "))
		}
	}
	return out
}

// containers lists classic LXC's containers below root, the cgroups that liblxc
// made for containers of hostler, e.g. lxc.payload.hostler.web, and the command
// sockets of running containers. It omits the containers of LXD and Incus.
func containers(root, cgroups, sockets string) []string {
	out, _ := filepath.Glob(filepath.Join(root, "*"))
	_ = filepath.WalkDir(cgroups, func(path string, d fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil || !d.IsDir():
		case hostlersGroup.MatchString(name):
			out = append(out, path)
			return fs.SkipDir
		case strings.HasPrefix(name, "lxc."):
			return fs.SkipDir
		}
		return nil
	})
	table, _ := os.ReadFile(sockets)
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) == 8 && commandSocket.MatchString(fields[7]) && !daemonsSocket.MatchString(fields[7]) {
			out = append(out, fields[7])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var (
	// A name of LXD or Incus has no dot; hostler's has one after the namespace.
	hostlersGroup = regexp.MustCompile(`^lxc\.(payload|monitor)\.[^.]+\.`)
	commandSocket = regexp.MustCompile(`^@/.*/command$`)
	daemonsSocket = regexp.MustCompile(`/containers/[^/]+/command$`)
)

func accounts() (out []string) {
	for _, file := range []string{"/etc/passwd", "/etc/group"} {
		b, _ := os.ReadFile(file)
		for line := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n") {
			out = append(out, file+" "+line)
		}
	}
	return out
}
