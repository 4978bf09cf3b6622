package lxd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// spaceLeast is the least free disk space for LXD, a small container and its
// image.
const spaceLeast = 2 * gib

// architectures are the architectures for which Debian builds LXD.
var architectures = []string{"amd64", "arm64", "arm", "386", "ppc64le", "s390x", "riscv64", "mips64le"}

// Supported implements initialisers.Initialiser. If LXD answers, the host
// supports it; otherwise Supported probes the host.
func (i *Initialiser) Supported(ctx context.Context) (bool, string) {
	socket := i.socket()
	if socket != "" && ping(ctx, socket) == nil {
		return true, ""
	}
	problems := i.probe().problems()
	// If LXD is absent, this host's release must have packages of it.
	if socket == "" && !i.programExists() {
		if _, err := i.packageSet(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	if len(problems) > 0 {
		return false, strings.Join(problems, "; ")
	}
	return true, ""
}

// probed holds the host's properties that decide whether LXD can run.
type probed struct {
	euid         int
	architecture string
	userNS       bool   // the kernel knows user namespaces
	maxUserNS    string // user.max_user_namespaces, "" when unknown
	mounts       string // /proc/self/mounts
	dir          string
	free         uint64 // bytes
}

func (i *Initialiser) probe() probed {
	read := func(path string) string {
		data, _ := os.ReadFile(i.opts.Paths.Host(path))
		return strings.TrimSpace(string(data))
	}
	_, err := os.Stat(i.opts.Paths.Host("/proc/self/ns/user"))
	p := probed{
		euid: os.Geteuid(), architecture: runtime.GOARCH, userNS: err == nil,
		maxUserNS: read("/proc/sys/user/max_user_namespaces"),
		mounts:    read("/proc/self/mounts"),
		dir:       existing(i.dir()),
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(p.dir, &fs); err == nil {
		p.free = fs.Bavail * uint64(fs.Bsize)
	}
	return p
}

// problems returns the obstacles, each with its remedy.
func (p probed) problems() []string {
	var all []string
	if p.euid != 0 {
		all = append(all, "the agent does not run as root: run hostlerd as root")
	}
	if !slices.Contains(architectures, p.architecture) {
		all = append(all, fmt.Sprintf("there is no LXD for %s: use another machine", p.architecture))
	}
	if !p.userNS {
		all = append(all, "the kernel has no user namespaces: boot a kernel with CONFIG_USER_NS")
	} else if p.maxUserNS == "0" {
		all = append(all, "user namespaces are switched off: set the kernel parameter user.max_user_namespaces above 0")
	}
	if !hasCgroups(p.mounts) {
		all = append(all, "no cgroups are mounted: mount cgroup2 on /sys/fs/cgroup")
	}
	if p.free < spaceLeast {
		all = append(all, fmt.Sprintf("%s has %d MiB free: free %d MiB", p.dir, p.free>>20, spaceLeast>>20))
	}
	return all
}

// hasCgroups reports whether either cgroup version is mounted.
func hasCgroups(mounts string) bool {
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) > 2 && (f[2] == "cgroup" || f[2] == "cgroup2") {
			return true
		}
	}
	return false
}

// existing returns path, or its nearest parent folder that exists.
func existing(path string) string {
	for path != "/" {
		if _, err := os.Stat(path); err == nil {
			break
		}
		path = filepath.Dir(path)
	}
	return path
}
