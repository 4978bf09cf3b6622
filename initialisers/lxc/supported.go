package lxc

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/packaging"
)

// spaceLeast is the least free disk space, in bytes. It is enough for a small
// container and its image.
const spaceLeast = 2 << 30

// Supported implements initialisers.Initialiser.
func (i *Initialiser) Supported(ctx context.Context) (bool, string) {
	problems := i.problems()
	if len(i.absent()) > 0 {
		if err := i.obtainable(ctx); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return len(problems) == 0, strings.Join(problems, "; ")
}

func (i *Initialiser) obtainable(ctx context.Context) error {
	names, err := i.packageNames()
	if err != nil {
		return err
	}
	return fault.Explain(packaging.CheckOffered(ctx, i.opts.Packages, names, "add one"), "cannot install LXC")
}

// problems returns the reasons why LXC cannot run, each with its remedy.
func (i *Initialiser) problems() (all []string) {
	if os.Geteuid() != 0 {
		all = append(all, "the agent does not run as root: run hostlerd as root")
	}
	if _, err := os.Stat(i.opts.Paths.Host("/proc/self/ns/user")); err != nil {
		all = append(all, "the kernel has no user namespaces: boot a kernel with CONFIG_USER_NS")
	} else if i.read("/proc/sys/user/max_user_namespaces") == "0" {
		all = append(all, "user namespaces are switched off: set the kernel parameter user.max_user_namespaces above 0")
	}
	if lacks := i.controllersLacking(); len(lacks) > 0 {
		all = append(all, fmt.Sprintf("there is no cgroup controller %s: boot without cgroup_disable, and mount cgroup2 on /sys/fs/cgroup", strings.Join(lacks, ", ")))
	}
	if user, group, err := i.opts.IDs(); err == nil {
		if !covers(i.read("/proc/self/uid_map"), user) || !covers(i.read("/proc/self/gid_map"), group) {
			all = append(all, "this host is itself a container without the ids of guests: give it a larger range of ids outside, or correct root's rows in /etc/subuid and /etc/subgid")
		}
	}
	if gone := i.poolGone(); gone != "" {
		all = append(all, gone)
	}
	dir := paths.Existing(i.opts.Paths.Host(i.opts.Path))
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && fs.Bavail*uint64(fs.Bsize) < spaceLeast && !i.hasPool() {
		all = append(all, fmt.Sprintf("%s has %d MiB free: free %d MiB", dir, fs.Bavail*uint64(fs.Bsize)>>20, spaceLeast>>20))
	}
	if i.apparmorOn() && !i.profileLoaded() {
		if _, err := os.Stat(i.opts.Paths.Host(profileFile)); err != nil {
			all = append(all, "AppArmor is on, and "+profileFile+" is missing: install hostler's package again")
		}
	}
	return all
}

func (i *Initialiser) read(path string) string {
	data, _ := os.ReadFile(i.opts.Paths.Host(path))
	return strings.TrimSpace(string(data))
}

// controllersLacking returns the cgroup controllers for limits that the host
// lacks, in either version of cgroups.
func (i *Initialiser) controllersLacking() (lacks []string) {
	unified := strings.Fields(i.read("/sys/fs/cgroup/cgroup.controllers"))
	for _, name := range []string{"cpu", "memory"} {
		if _, err := os.Stat(i.opts.Paths.Host("/sys/fs/cgroup/" + name)); err != nil && !slices.Contains(unified, name) {
			lacks = append(lacks, name)
		}
	}
	return lacks
}

// covers reports whether a uid_map of this process has the ids of guests. A map
// that cannot be read counts as complete.
func covers(text string, first uint32) bool {
	if text == "" {
		return true
	}
	for line := range strings.Lines(text) {
		var inside, outside, count uint64
		if n, _ := fmt.Sscan(line, &inside, &outside, &count); n == 3 && inside <= uint64(first) && uint64(first)+guestIDs <= inside+count {
			return true
		}
	}
	return false
}
