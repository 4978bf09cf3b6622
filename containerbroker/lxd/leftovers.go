package lxd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/canonical/lxd/shared/api"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// leftoversDir is the folder in a storage pool, next to LXD's own folders, to
// which leftover files are moved.
const leftoversDir = "hostler-aside"

// maxBackup bounds, in bytes, how much of a backup.yaml is read.
const maxBackup = 4 << 20

// leftover is a folder with a container's files that LXD may not know.
type leftover struct {
	pool, name string // the folder of the pool, and the name of the container's folder in it
	// owner is the namespace in the files' stamp. foreign is true if their
	// backup.yaml has no stamp of hostler. Both are zero if there is no
	// readable backup.yaml, without which LXD cannot recover the files either.
	owner   string
	foreign bool
	// plain is true if the files are in an ordinary folder, in a pool whose
	// containers are btrfs subvolumes.
	plain bool
}

// subvolumeRoot is the inode number of every btrfs subvolume's root.
const subvolumeRoot = 256

// MoveLeftovers implements containerbroker.Cleaner for pools of the drivers
// btrfs and dir. LXD may have removed a deleted container from its database
// while the filesystem has not yet written the removal of the files, so that a
// power cut brings the files back. A new container of that name would get the
// old files instead of its image's, or could not be created at all (LXD 5.0.2).
// LXD has no call that lists or removes such files.
func (d *Driver) MoveLeftovers(ctx context.Context) (places []string, more bool, err error) {
	c := d.open(ctx, d.opts.RequestTimeout)
	// List the files before asking LXD. Because LXD records a container before
	// it makes the files, it then already knows any container that is being
	// made.
	found, err := d.containerFiles(c)
	if err != nil || len(found) == 0 {
		return nil, false, err
	}
	projects, err := projects(c)
	if err != nil {
		return nil, false, err
	}
	known, err := d.knownFiles(c, projects, found)
	if err != nil {
		return nil, false, err
	}
	var failed []error
	for _, l := range found {
		if known[l.path()] && !l.unusable() {
			continue
		}
		place, err := d.clear(c, projects, l)
		switch {
		case errors.Is(err, errAtWork):
			more = true
		case err != nil:
			failed = append(failed, fmt.Errorf("cannot move %s away, which %s does not know: %w", l.path(), c.dialect.Name, err))
		case place != "":
			places = append(places, place)
		}
	}
	return places, more, errors.Join(failed...)
}

// errAtWork means that LXD may be creating the container that owns the files.
var errAtWork = errors.New("the daemon is busy")

// clear moves files out of LXD's way and returns their new place. It returns ""
// if the files stay, or if their folder was empty or has gone. Before that it
// asks LXD again, because LXD may be working on a container of that name. It
// returns errAtWork if the caller must try again later.
func (d *Driver) clear(c *client, projects []string, l *leftover) (place string, err error) {
	l.look()
	ops, err := atWork(c, projects)
	if err != nil {
		return "", fmt.Errorf("cannot list %s's operations: %w", c.dialect.Name, err)
	}
	known, err := d.knownFiles(c, projects, []*leftover{l})
	if err != nil {
		return "", err
	}
	switch {
	case known[l.path()] && !l.unusable():
		return "", nil
	case known[l.path()] && slices.ContainsFunc(ops, func(op api.Operation) bool { return concerns(op, l.name) }):
		return "", errAtWork
	case !known[l.path()] && len(ops) > 0:
		// An import, whose container may have any stamp, unpacks the files
		// before LXD records the container. Copies and backups also begin in
		// folders that LXD has not recorded.
		d.once("left "+l.path(), func() {
			d.log.Info("Files of a container that the daemon does not know stay until it is idle.", "files", l.path())
		})
		return "", errAtWork
	case l.plain && os.Remove(l.path()) == nil:
		d.log.Info("An empty folder in the place of a container's files was removed.", "files", l.path())
		return "", nil
	case l.foreign || l.owner != "" && l.owner != d.opts.Namespace:
		d.once("foreign "+l.path(), func() {
			d.log.Warn("Files of a container that the daemon does not know stay: hostler did not make them.", "files", l.path())
		})
		return "", nil
	}
	place, err = l.move()
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // it was being deleted
	}
	return place, err
}

// inTheWay returns an error if the new container's place in the pool holds the
// files of a former container, because LXD would create the new container
// inside them. If the pools are not visible, it returns nil.
func (d *Driver) inTheWay(c *client, m containerbroker.Machine) error {
	pools := []string{m.Pool}
	if m.Pool == "" {
		pools[0] = "default" // LXD's usual name of the first pool
		if entries, err := os.ReadDir(d.poolDir("")); err == nil {
			pools = nil
			for _, e := range entries {
				pools = append(pools, e.Name())
			}
		}
	}
	for _, pool := range pools {
		files := (&leftover{pool: d.poolDir(pool), name: m.Name}).path()
		if _, err := os.Lstat(files); err != nil {
			continue
		}
		// LXD records a container before it makes its files.
		if _, err := d.read(c, m.Name); fault.Is(err, fault.NotFound) {
			return fault.New(fault.Transient, "%s belongs to a container that %s does not know; hostler moves its own such files away when %[2]s is idle, others an administrator must move", files, c.dialect.Name)
		}
		return nil
	}
	return nil
}

// once calls tell only if it was not called before with the same key what.
func (d *Driver) once(what string, tell func()) {
	if _, logged := d.logged.LoadOrStore(what, true); !logged {
		tell()
	}
}

var _ containerbroker.Cleaner = (*Driver)(nil)

// poolDir returns the folder in which LXD mounts a storage pool.
func (d *Driver) poolDir(pool string) string {
	return filepath.Join(filepath.Dir(d.opts.Socket), "storage-pools", pool)
}

// containerFiles lists the container folders in the pools. A pool that is not
// visible from here (in the snap's mount namespace) counts as empty.
func (d *Driver) containerFiles(c *client) (all []*leftover, err error) {
	var pools []api.StoragePool
	if _, err := c.get("/1.0/storage-pools?recursion=1", &pools); err != nil {
		return nil, fmt.Errorf("cannot list %s's storage pools: %w", c.dialect.Name, err)
	}
	for _, pool := range pools {
		if pool.Driver != "btrfs" && pool.Driver != "dir" {
			continue
		}
		dir := d.poolDir(pool.Name)
		entries, err := os.ReadDir(filepath.Join(dir, "containers"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot look into %s's storage pool: %w", c.dialect.Name, err)
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			l := &leftover{pool: dir, name: e.Name()}
			var stat unix.Stat_t
			l.plain = pool.Driver == "btrfs" && unix.Lstat(l.path(), &stat) == nil && stat.Ino != subvolumeRoot
			all = append(all, l)
		}
	}
	return all, nil
}

// projects returns the names of LXD's projects.
func projects(c *client) (names []string, err error) {
	var all []api.Project
	if _, err := c.get("/1.0/projects?recursion=1", &all); err != nil {
		return nil, fmt.Errorf("cannot list %s's projects: %w", c.dialect.Name, err)
	}
	for _, p := range all {
		names = append(names, p.Name)
	}
	return names, nil
}

// knownFiles returns the paths of all container files that LXD knows, in the
// pools of found.
func (d *Driver) knownFiles(c *client, projects []string, found []*leftover) (map[string]bool, error) {
	known, asked := map[string]bool{}, map[string]bool{}
	for _, l := range found {
		if asked[l.pool] {
			continue
		}
		asked[l.pool] = true
		for _, project := range projects {
			var volumes []api.StorageVolume
			path := "/1.0/storage-pools/" + url.PathEscape(filepath.Base(l.pool)) + "/volumes/container?recursion=1&project=" + url.QueryEscape(project)
			if _, err := c.get(path, &volumes); err != nil {
				return nil, fmt.Errorf("cannot list the contents of %s's storage pool %s: %w", c.dialect.Name, filepath.Base(l.pool), err)
			}
			for _, volume := range volumes {
				name := volume.Name
				if project != api.ProjectDefaultName {
					name = project + "_" + name
				}
				known[(&leftover{pool: l.pool, name: name}).path()] = true
			}
		}
	}
	return known, nil
}

func (l *leftover) path() string { return filepath.Join(l.pool, "containers", l.name) }

// unusable reports whether LXD can neither start nor delete a container with
// these files.
func (l *leftover) unusable() bool {
	if !l.plain {
		return false
	}
	_, err := os.Lstat(filepath.Join(l.path(), "rootfs"))
	return errors.Is(err, fs.ErrNotExist)
}

// look reads the owner of the files from their backup.yaml.
func (l *leftover) look() {
	file, err := os.Open(filepath.Join(l.path(), "backup.yaml"))
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxBackup))
	var backup struct {
		Container *struct {
			Config map[string]string `yaml:"config"`
		} `yaml:"container"`
	}
	// A power cut may leave backup.yaml empty.
	if err != nil || len(strings.TrimSpace(string(text))) == 0 {
		return
	}
	if err := yaml.Unmarshal(text, &backup); err != nil || backup.Container == nil {
		l.foreign = true // an unknown format
		return
	}
	l.owner = backup.Container.Config[keyNamespace]
	l.foreign = l.owner == ""
}

// move moves the files to leftoversDir in their pool and returns the new path.
func (l *leftover) move() (string, error) {
	dir := filepath.Join(l.pool, leftoversDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	place := filepath.Join(dir, l.name+"."+time.Now().UTC().Format("20060102T150405.000"))
	return place, os.Rename(l.path(), place)
}
