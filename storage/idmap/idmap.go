// Package idmap shows directories of the host to guests with translated owners.
// A file of the guest's root belongs to root on the host, no matter which host
// ids the guest uses. The package uses idmapped mounts, so that nothing on disk
// changes. If the filesystem does not support idmapped mounts, the guest's root
// becomes the owner of the empty directory.
package idmap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"hostler/internal/run"
)

// Range is a range of ids of the host.
type Range struct{ First, Count uint32 }

// has reports whether an id of the host is in the range.
func (r Range) has(id uint32) bool { return id >= r.First && id-r.First < r.Count }

// Map holds the ids of the host that a guest's users and groups have. The first
// id belongs to the guest's id 0.
type Map struct{ Users, Groups Range }

func (m Map) String() string {
	return fmt.Sprintf("users from %d, groups from %d", m.Users.First, m.Groups.First)
}

// leastIDs is the least number of ids that distributions need.
const leastIDs = 65536

// Of returns the map of guests whose daemon runs as the user. It reads files in
// the form of /etc/subuid and /etc/subgid and takes the first row of the user
// or of id 0 that has enough ids. fallback is the daemon's default, which
// applies if a file is missing.
func Of(subuid, subgid, user string, fallback Map) (Map, error) {
	users, err := rangeOf(subuid, user, "--add-subuids", fallback.Users)
	if err != nil {
		return Map{}, err
	}
	groups, err := rangeOf(subgid, user, "--add-subgids", fallback.Groups)
	return Map{Users: users, Groups: groups}, err
}

// rangeOf reads one of the files. option is usermod's option that adds a row.
func rangeOf(path, user, option string, fallback Range) (Range, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return fallback, nil
	}
	if err != nil {
		return Range{}, fmt.Errorf("cannot read the id range of guests: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Split(strings.TrimSpace(lines.Text()), ":")
		if len(fields) != 3 || fields[0] != user && fields[0] != "0" {
			continue
		}
		first, err1 := strconv.ParseUint(fields[1], 10, 32)
		count, err2 := strconv.ParseUint(fields[2], 10, 32)
		if err1 == nil && err2 == nil && count >= leastIDs {
			return Range{First: uint32(first), Count: uint32(count)}, nil
		}
	}
	if err := lines.Err(); err != nil {
		return Range{}, fmt.Errorf("cannot read the id range of guests: %w", err)
	}
	return Range{}, fmt.Errorf("cannot find the id range of guests: %s has no row of %s with %d ids; run `usermod %s %d-%d %s` and restart LXD or Incus",
		path, user, leastIDs, option, fallback.First, fallback.First+fallback.Count-1, user)
}

// namespaces caches a user namespace per map.
type namespaces struct {
	runner run.Runner
	proc   string

	mu   sync.Mutex
	made map[Map]*os.File
}

// get returns a user namespace with the map, which stays open until close() is
// called. The open file keeps the namespace alive without a process.
func (n *namespaces) get(ctx context.Context, m Map) (*os.File, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f := n.made[m]; f != nil {
		return f, nil
	}
	ids := run.UserNamespace{
		FirstUser: int(m.Users.First), Users: int(m.Users.Count),
		FirstGroup: int(m.Groups.First), Groups: int(m.Groups.Count),
	}
	var opened *os.File
	err := ids.Hold(ctx, n.runner, func(pid int) (err error) {
		opened, err = os.OpenFile(fmt.Sprintf("%s/%d/ns/user", n.proc, pid), os.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		if opened != nil {
			_ = opened.Close()
		}
		return nil, fmt.Errorf("cannot make a user namespace: %w", err)
	}
	n.made[m] = opened
	return opened, nil
}

func (n *namespaces) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for m, f := range n.made {
		_ = f.Close()
		delete(n.made, m)
	}
}
