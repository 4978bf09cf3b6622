package lxd

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"hostler/internal/paths"
	"hostler/packaging"
)

// spaceLeast is the least free disk space, in bytes. It is enough for LXD, a
// small container and its image.
const spaceLeast = 2 << 30

// architectures are the architectures, in Go's terms, for which Debian builds
// LXD.
var architectures = []string{"amd64", "arm64", "arm", "386", "ppc64le", "s390x", "riscv64", "mips64le"}

// Supported implements initialisers.Initialiser. If LXD answers, the host
// supports it. Otherwise Supported probes the host.
func (i *Initialiser) Supported(ctx context.Context) (bool, string) {
	socket := i.socket()
	if socket != "" && ping(ctx, socket) == nil {
		return true, ""
	}
	problems := i.probe().problems(i.opts.Dialect.Name)
	// If LXD is absent, a repository of this host must offer LXD's packages.
	if socket == "" && !i.programExists() {
		if err := i.obtainable(ctx); err != nil {
			problems = append(problems, err.Error())
		}
	}
	if len(problems) > 0 {
		return false, strings.Join(problems, "; ")
	}
	return true, ""
}

// Advice implements initialisers.Adviser. Debian 13 is the last Debian with LXD.
func (i *Initialiser) Advice() string {
	release, err := packaging.ReadRelease(i.opts.Paths.OSRelease())
	if err != nil || release.ID != packaging.Debian || release.Before("13") || i.opts.Dialect.Name != LXD.Name {
		return ""
	}
	return "prefer `type: incus` for new machines: the next Debian has no LXD"
}

// probed holds the host's properties that decide whether LXD can run.
type probed struct {
	euid         int
	architecture string
	userNS       bool   // the kernel knows user namespaces
	maxUserNS    string // user.max_user_namespaces; "" if it is not known
	mounts       string // content of /proc/self/mounts
	dir          string
	free         uint64 // free space at dir, in bytes
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
		dir:       paths.Existing(i.dir()),
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(p.dir, &fs); err == nil {
		p.free = fs.Bavail * uint64(fs.Bsize)
	}
	return p
}

// problems returns the reasons why LXD cannot run, each with its remedy.
func (p probed) problems(name string) []string {
	var all []string
	if p.euid != 0 {
		all = append(all, "the agent does not run as root: run hostlerd as root")
	}
	if !slices.Contains(architectures, p.architecture) {
		all = append(all, fmt.Sprintf("there is no %s for %s: use another machine", name, p.architecture))
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
