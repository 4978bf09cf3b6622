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

// asideDir is the folder in a storage pool for what is set aside, beside
// LXD's own.
const asideDir = "hostler-aside"

// maxBackup bounds what is read of a backup.yaml.
const maxBackup = 4 << 20

// leftover are files of a container that LXD does not know.
type leftover struct {
	pool, name string // the pool's folder, the name there
	// owner is the namespace that the files are stamped with, foreign that
	// their backup.yaml bears no stamp of ours. Both are zero where no backup
	// says whose they are: LXD cannot recover such files either.
	owner   string
	foreign bool
	// plain: it is a mere folder in a pool whose containers are subvolumes.
	plain bool
}

// subvolumeRoot is the inode number of every btrfs subvolume's root.
const subvolumeRoot = 256

// SetAside implements containerbroker.Cleaner for pools that are folders
// (btrfs and dir). LXD's database forgets a deleted container for good, while
// the removal of its files may still wait to be written by the file system: a
// power cut brings them back. A new container of that name would get the old
// files in the place of its image's, or could not be made at all (LXD 5.0.2),
// and LXD has no call that names or removes such files.
func (d *Driver) SetAside(ctx context.Context) (places []string, more bool, err error) {
	c := d.open(ctx, d.opts.RequestTimeout)
	// The files are looked at first: LXD writes them down before it makes them,
	// so what is being made is known by the time it is asked.
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
			failed = append(failed, fmt.Errorf("cannot set %s aside, which LXD has forgotten: %w", l.path(), err))
		case place != "":
			places = append(places, place)
		}
	}
	return places, more, errors.Join(failed...)
}

// errAtWork: LXD may be making the container that the files are of.
var errAtWork = errors.New("LXD is at work")

// clear takes files out of LXD's way and returns their new place; "": they
// stay, or nothing was in them. LXD may be at work, with a container of that
// name too, so that it is asked once more. errAtWork: it cannot be told yet.
func (d *Driver) clear(c *client, projects []string, l *leftover) (place string, err error) {
	l.look()
	ops, err := atWork(c, projects)
	if err != nil {
		return "", fmt.Errorf("cannot list LXD's operations: %w", err)
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
		// An import unpacks a container before it is written down, whoever's
		// stamp is in it, and copies and backups begin in folders of their own.
		d.once("left "+l.path(), func() {
			d.log.Info("Files of a container that LXD does not know are left until LXD is at rest.", "files", l.path())
		})
		return "", errAtWork
	case l.plain && os.Remove(l.path()) == nil:
		d.log.Info("An empty folder in the place of a container's files was removed.", "files", l.path())
		return "", nil
	case l.foreign || l.owner != "" && l.owner != d.opts.Namespace:
		d.once("foreign "+l.path(), func() {
			d.log.Warn("LXD does not know the files of a container, which are not hostler's and stay.", "files", l.path())
		})
		return "", nil
	}
	place, err = l.setAside()
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // it was being deleted
	}
	return place, err
}

// inTheWay refuses a container whose place in its pool has the files of a former
// one: LXD would make the new one inside of them. Where the pools are not to be
// seen nothing is.
func (d *Driver) inTheWay(c *client, m containerbroker.Machine) error {
	pools := []string{m.Pool}
	if m.Pool == "" {
		pools[0] = "default" // as LXD names its first one
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
		// LXD writes a container down before it makes its files.
		if _, err := d.read(c, m.Name); fault.Is(err, fault.NotFound) {
			return fault.New(fault.Transient, "%s is there, of a container that LXD does not know: it is set aside when LXD is at rest, unless it is another's, which only a person can move away", files)
		}
		return nil
	}
	return nil
}

// once tells what was not told yet.
func (d *Driver) once(what string, tell func()) {
	if _, told := d.told.LoadOrStore(what, true); !told {
		tell()
	}
}

var _ containerbroker.Cleaner = (*Driver)(nil)

// poolDir is where LXD mounts a storage pool.
func (d *Driver) poolDir(pool string) string {
	return filepath.Join(filepath.Dir(d.opts.Socket), "storage-pools", pool)
}

// containerFiles lists what the pools hold of containers. A pool that is not
// to be seen from here (in the snap's mount namespace) holds none.
func (d *Driver) containerFiles(c *client) (all []*leftover, err error) {
	var pools []api.StoragePool
	if _, err := c.get("/1.0/storage-pools?recursion=1", &pools); err != nil {
		return nil, fmt.Errorf("cannot list LXD's storage pools: %w", err)
	}
	for _, pool := range pools {
		if pool.Driver != "btrfs" && pool.Driver != "dir" {
			continue
		}
		dir := d.poolDir(pool.Name)
		entries, err := os.ReadDir(filepath.Join(dir, "containers"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot look into LXD's storage pool: %w", err)
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

// projects lists the names of LXD's projects.
func projects(c *client) (names []string, err error) {
	var all []api.Project
	if _, err := c.get("/1.0/projects?recursion=1", &all); err != nil {
		return nil, fmt.Errorf("cannot list LXD's projects: %w", err)
	}
	for _, p := range all {
		names = append(names, p.Name)
	}
	return names, nil
}

// knownFiles are the paths of the files that LXD knows as those of containers,
// in the pools of what was found.
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
				return nil, fmt.Errorf("cannot list what LXD's storage pool %s holds: %w", filepath.Base(l.pool), err)
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

// unusable says that LXD can neither start nor delete a container with these
// files.
func (l *leftover) unusable() bool {
	if !l.plain {
		return false
	}
	_, err := os.Lstat(filepath.Join(l.path(), "rootfs"))
	return errors.Is(err, fs.ErrNotExist)
}

// look reads whose the files are.
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
	// A power cut leaves a half-written one empty.
	if err != nil || len(strings.TrimSpace(string(text))) == 0 {
		return
	}
	if err := yaml.Unmarshal(text, &backup); err != nil || backup.Container == nil {
		l.foreign = true // something else than we know
		return
	}
	l.owner = backup.Container.Config[keyNamespace]
	l.foreign = l.owner == ""
}

// setAside moves the files within their pool and returns the new place.
func (l *leftover) setAside() (string, error) {
	dir := filepath.Join(l.pool, asideDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	place := filepath.Join(dir, l.name+"."+time.Now().UTC().Format("20060102T150405.000"))
	return place, os.Rename(l.path(), place)
}
