package lxc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler/initialisers"
	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// own returns a path in the agent's folder among the instances.
func (i *Initialiser) own(parts ...string) string {
	return filepath.Join(append([]string{i.opts.Paths.Host(i.opts.Path), "." + i.opts.Namespace}, parts...)...)
}

// hasPool reports whether the pool was made, with a file or as a plain folder.
func (i *Initialiser) hasPool() bool {
	_, err := os.Lstat(i.own("pool"))
	return err == nil
}

// hasPoolFile reports whether the pool is a file with a filesystem.
func (i *Initialiser) hasPoolFile() bool {
	_, err := os.Lstat(i.own("pool.img"))
	return err == nil
}

// poolMounted reports whether a filesystem is mounted on the pool's folder.
func (i *Initialiser) poolMounted() bool {
	var pool, parent unix.Stat_t
	return unix.Lstat(i.own("pool"), &pool) == nil && unix.Lstat(i.own(), &parent) == nil && pool.Dev != parent.Dev
}

// poolLacks returns what the pool gets, or "".
func (i *Initialiser) poolLacks() string {
	switch {
	case !i.hasPool():
		return "LXC gets a pool of root filesystems"
	case i.hasPoolFile() && !i.mounted():
		return "the pool of root filesystems is mounted"
	case i.hasPoolFile() && !i.poolComplete():
		return "the pool of root filesystems gets its quota and its mount at boot"
	case readMark(i.opts.Paths.PoolMark()) != i.own():
		return "the pool of root filesystems is recorded"
	}
	return ""
}

// poolComplete reports whether mountPool did all its steps: it enables the unit
// last, or writes a mark where there is no systemd.
func (i *Initialiser) poolComplete() bool {
	if !i.underSystemd() {
		_, err := os.Lstat(i.own("pool.complete"))
		return err == nil
	}
	units, _ := filepath.Glob(i.opts.Paths.Host(wantedUnits + "/*.mount"))
	return slices.ContainsFunc(units, func(unit string) bool {
		text, _ := os.ReadFile(unit)
		return strings.Contains(string(text), "\nWhere="+quoted(i.own("pool"))+"\n")
	})
}

// wantedUnits holds a link to each unit that is enabled for the target of
// mountAtBoot.
const wantedUnits = "/etc/systemd/system/multi-user.target.wants"

// quoted returns a path as it stands in a unit.
func quoted(path string) string { return strings.ReplaceAll(path, "%", "%%") }

// limitNotice returns a notice if root disks have no size limit.
func (i *Initialiser) limitNotice() string {
	if i.hasPoolFile() {
		return ""
	}
	return "LXC's root filesystems are plain folders, since this host can mount no btrfs from a file: root-disk has no effect"
}

// makePool makes and mounts the pool of root filesystems. Where btrfs or loop
// devices are missing, the pool is a plain folder.
func (i *Initialiser) makePool(ctx context.Context, progress func(string)) error {
	if i.poolLacks() == "" {
		return nil
	}
	if gone := i.poolGone(); gone != "" {
		return fault.New(fault.NeedsOperator, "%s", gone)
	}
	progress("preparing LXC's pool of root filesystems")
	err := os.MkdirAll(i.own(), 0o711)
	made := err == nil && !i.hasPool() && !i.hasPoolFile()
	if made {
		err = i.makePoolFile(ctx)
	}
	if err == nil {
		err = i.mountPool(ctx, made)
	}
	if err == nil {
		err = atomicfile.Write(i.opts.Paths.PoolMark(), []byte(i.own()+"\n"), 0o600)
	}
	if err != nil {
		return fault.Explain(err, "cannot prepare LXC's pool of root filesystems")
	}
	i.opts.Notice(RootDiskNotice, i.limitNotice())
	return nil
}

// poolGone returns the problem of a pool that was made and is not there, or "". A
// new one in its place would have the machines made a second time.
func (i *Initialiser) poolGone() string {
	mark := i.opts.Paths.PoolMark()
	if i.hasPool() || i.hasPoolFile() || readMark(mark) != i.own() {
		return ""
	}
	return fmt.Sprintf("LXC's pool with the machines' root filesystems is gone from %s: mount the filesystem that holds it, or remove %s to start with an empty pool", i.own(), mark)
}

// readMark returns the path in a PoolMark, or "".
func readMark(path string) string {
	text, _ := os.ReadFile(path)
	return strings.TrimSuffix(string(text), "\n")
}

// makePoolFile makes the pool's file. The file gets its name when its filesystem
// is complete.
func (i *Initialiser) makePoolFile(ctx context.Context) error {
	size := uint64(max(i.opts.PoolSize, 0))
	if size == 0 {
		var fs unix.Statfs_t
		if err := unix.Statfs(i.own(), &fs); err != nil {
			return err
		}
		size = initialisers.PoolSize(fs.Bavail * uint64(fs.Bsize))
	}
	tmp := i.own("pool.img.tmp")
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	err = f.Truncate(int64(size))
	if err == nil {
		_, err = i.opts.Runner.Run(ctx, run.Command{Path: paths.MkfsBtrfs, Args: []string{"-q", "-f", tmp}, Timeout: 5 * time.Minute})
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, i.own("pool.img"))
}

// mountPool mounts the pool's file, now and at each start of the host. Only a file
// that was made just now is given up for a plain folder: another holds the root
// filesystems of machines.
func (i *Initialiser) mountPool(ctx context.Context, made bool) error {
	if err := os.Mkdir(i.own("pool"), 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if !i.mounted() {
		_, err := i.opts.Runner.Run(ctx, run.Command{
			Path: paths.Mount, Args: []string{"-t", "btrfs", "-o", "loop", i.own("pool.img"), i.own("pool")}, Timeout: time.Minute,
		})
		if err != nil && made && ctx.Err() == nil && i.cannotMount() {
			i.log.Warn("This host can mount no btrfs from a file; root filesystems are plain folders.", "error", err)
			return os.Remove(i.own("pool.img"))
		}
		if err != nil {
			return err
		}
	}
	if _, err := i.opts.Runner.Run(ctx, run.Command{Path: paths.Btrfs, Args: []string{"quota", "enable", i.own("pool")}, Timeout: time.Minute}); err != nil {
		return err
	}
	if !i.underSystemd() {
		return atomicfile.Write(i.own("pool.complete"), nil, 0o600)
	}
	return i.mountAtBoot(ctx)
}

// cannotMount reports whether the host lacks loop devices or btrfs.
func (i *Initialiser) cannotMount() bool {
	_, err := os.Stat(i.opts.Paths.Host("/dev/loop-control"))
	known := strings.Fields(i.read("/proc/filesystems"))
	return err != nil || !slices.Contains(known, "btrfs")
}

// mountAtBoot has systemd mount the pool before it starts containers.
func (i *Initialiser) mountAtBoot(ctx context.Context) error {
	escaped, err := i.opts.Runner.Run(ctx, run.Command{Path: paths.SystemdEscape, Args: []string{"-p", "--suffix=mount", i.own("pool")}})
	if err != nil {
		return err
	}
	unit := strings.TrimSpace(string(escaped.Stdout))
	if !strings.HasSuffix(unit, ".mount") || strings.ContainsRune(unit, '/') {
		return fmt.Errorf("systemd-escape answered %q", unit)
	}
	text := "[Unit]\nDescription=hostler's pool of LXC root filesystems\nBefore=lxc.service\n\n[Mount]\nWhat=" + quoted(i.own("pool.img")) +
		"\nWhere=" + quoted(i.own("pool")) + "\nType=btrfs\nOptions=loop\n\n[Install]\nWantedBy=multi-user.target\n"
	if err := atomicfile.Write(i.opts.Paths.Host("/etc/systemd/system/"+unit), []byte(text), 0o644); err != nil {
		return err
	}
	if err := i.systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	return i.systemctl(ctx, "enable", unit)
}
