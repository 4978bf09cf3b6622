package idmap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/run"
	"hostler/storage"
	"hostler/storage/mounts"
)

// Options are the places of views.
type Options struct {
	// Dir is the absolute path of the directory of all views.
	Dir    string
	Runner run.Runner
	// Proc defaults to /proc.
	Proc string
}

// Views shows directories below Dir. It is safe for concurrent use for
// different paths.
type Views struct {
	o    Options
	made namespaces
}

// New returns views; it does not access the host.
func New(o Options) *Views {
	o.Proc = cmp.Or(o.Proc, "/proc")
	return &Views{o: o, made: namespaces{runner: o.Runner, proc: o.Proc, made: map[Map]*os.File{}}}
}

// Close closes the cached namespaces. The views stay mounted.
func (v *Views) Close() { v.made.close() }

// Params describe a view.
type Params struct {
	// Source is the mount point of a filesystem. Path is the mount point of the
	// view, below Options.Dir.
	Source, Path string
	ReadOnly     bool
	// Setuid and Devices let the guest use setuid programs and devices in the
	// view, if the kernel allows it. The mount at Source allows neither.
	Setuid, Devices bool
	// Map is the guest's map; nil leaves the owners unchanged.
	Map *Map
}

// View is a mounted view, or any other mount.
type View struct {
	// Filesystem identifies the filesystem and the mounted directory in it,
	// e.g. "7:3:/".
	Filesystem string
	ReadOnly   bool
	// Mapped is true if owners are translated. Owner is the host's id of the
	// owner of the view's directory.
	Mapped bool
	Owner  uint32
}

// Fits reports whether the view has the wanted parameters and a source with
// this Filesystem.
func (s View) Fits(filesystem string, p Params) bool {
	if s.Filesystem != filesystem || s.ReadOnly != p.ReadOnly {
		return false
	}
	if p.Map == nil {
		return !s.Mapped
	}
	return s.Mapped || p.Map.Users.has(s.Owner)
}

// List returns the mounts below the directory of views and the mounts at the
// paths that also lists. Of stacked mounts it returns the visible mount.
func (v *Views) List(ctx context.Context, also ...string) (map[string]View, error) {
	table, err := mounts.In(ctx, v.o.Proc)
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]bool, len(also))
	for _, path := range also {
		wanted[path] = true
	}
	all := make(map[string]View, 2*len(also))
	for _, m := range table {
		if wanted[m.Mountpoint] || strings.HasPrefix(m.Mountpoint, v.o.Dir+"/") {
			all[m.Mountpoint] = view(m, !wanted[m.Mountpoint])
		}
	}
	return all, nil
}

// view describes a mount. It looks up the owner only if guests is true.
func view(m *mountinfo.Info, guests bool) View {
	s := View{
		Filesystem: fmt.Sprintf("%d:%d:%s", m.Major, m.Minor, m.Root),
		ReadOnly:   slices.Contains(strings.Split(m.Options, ","), "ro"),
		Mapped:     slices.Contains(strings.Split(m.Options, ","), "idmapped"),
	}
	var stat unix.Stat_t
	if guests && unix.Lstat(m.Mountpoint, &stat) == nil {
		s.Owner = stat.Uid
	}
	return s
}

// Show makes views. It succeeds if a fitting view exists. The error for any
// other mount at the path is fault.Conflict.
func (v *Views) Show(ctx context.Context, views []Params) []storage.Result[View] {
	return storage.Each(ctx, views, func(ctx context.Context, p Params) (View, error) {
		s, err := v.show(ctx, p)
		return s, fault.Explain(err, "cannot show %s to its guest", p.Source)
	})
}

func (v *Views) show(ctx context.Context, p Params) (View, error) {
	if err := v.within(p.Path); err != nil {
		return View{}, err
	}
	table, err := mounts.Read(v.o.Proc)
	if err != nil {
		return View{}, err
	}
	source := table.Top(p.Source)
	if source == nil {
		return View{}, fault.New(fault.NotReady, "nothing is mounted on %s", p.Source)
	}
	if top := table.Top(p.Path); top != nil {
		if s := view(top, true); s.Fits(view(source, false).Filesystem, p) {
			return s, nil
		}
		return View{}, fault.New(fault.Conflict, "%s of type %s is mounted on %s", top.Source, top.FSType, p.Path)
	}
	point, err := mounts.OpenPoint(p.Path)
	if err != nil {
		return View{}, err
	}
	defer point.Close()
	if err := point.Empty(); err != nil {
		return View{}, err
	}
	if err := v.mount(ctx, p, source.FSType); err != nil {
		v.remove(p.Path)
		return View{}, err
	}
	if table, err = mounts.Read(v.o.Proc); err != nil {
		return View{}, err
	}
	top := table.Top(p.Path)
	if top == nil {
		return View{}, fault.New(fault.Transient, "the mount on %s disappeared", p.Path)
	}
	return view(top, true), nil
}

// mount copies the source's mount, sets up the copy detached, and then attaches
// it at the path.
func (v *Views) mount(ctx context.Context, p Params, fstype string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, p.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("cannot copy the mount: %w", err)
	}
	defer unix.Close(tree)
	if p.Map != nil {
		namespace, err := v.made.get(ctx, *p.Map)
		if err != nil {
			return err
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(namespace.Fd())}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			if err := give(p.Source, *p.Map, fstype, err); err != nil {
				return err
			}
		}
	}
	attr := unix.MountAttr{}
	if p.Setuid {
		attr.Attr_clr |= unix.MOUNT_ATTR_NOSUID
	}
	if p.Devices {
		attr.Attr_clr |= unix.MOUNT_ATTR_NODEV
	}
	// If an outer user namespace made the source's mount, the flags are locked
	// (EPERM). The guest then cannot use setuid programs and devices.
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("cannot allow setuid programs and devices to the guest: %w", err)
	}
	if p.ReadOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return fmt.Errorf("cannot make it read-only: %w", err)
		}
	}
	return fault.Explain(unix.MoveMount(tree, "", unix.AT_FDCWD, p.Path, unix.MOVE_MOUNT_F_EMPTY_PATH), "cannot mount on %s", p.Path)
}

// give makes the guest's root the owner of an empty directory on a filesystem
// without idmapped mounts. It refuses a directory with contents, because the
// files belong to users of the host and a change of owners could not be undone.
func give(dir string, m Map, fstype string, refused error) error {
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil {
		return fmt.Errorf("cannot look at %s: %w", dir, err)
	}
	if m.Users.has(stat.Uid) {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot look into %s: %w", dir, err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == "lost+found" })
	if len(entries) > 0 {
		return fault.New(fault.NeedsOperator, "the kernel does not translate owners on %s (%v), and its files belong to users of the host: "+
			"give them to the guest's (%v) with chown, or declare the machine privileged", fstype, refused, m)
	}
	return fault.Explain(os.Lchown(dir, int(m.Users.First), int(m.Groups.First)), "the kernel does not translate owners on %s (%v), and its root cannot be given to the guest", fstype, refused)
}

// HideParams describe a view to remove. Force detaches a view that is in use.
type HideParams struct {
	Path  string
	Force bool
}

// Hide removes views. It succeeds for a missing view. The error for a busy view
// is a storage.BusyError.
func (v *Views) Hide(ctx context.Context, views []HideParams) []error {
	return storage.EachError(ctx, views, func(_ context.Context, p HideParams) error {
		return fault.Explain(v.hide(p.Path, p.Force), "cannot remove %s", p.Path)
	})
}

func (v *Views) hide(path string, force bool) error {
	if err := v.within(path); err != nil {
		return err
	}
	table, err := mounts.Read(v.o.Proc)
	if err != nil {
		return err
	}
	for range table.At(path) {
		if err := mounts.Unmount(v.o.Proc, path, force); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	v.remove(path)
	return nil
}

// remove removes the empty directories of a view, up to but not including the
// directory of all views.
func (v *Views) remove(path string) {
	for ; path != v.o.Dir && strings.HasPrefix(path, v.o.Dir+"/"); path = filepath.Dir(path) {
		if unix.Rmdir(path) != nil {
			return
		}
	}
}

// within refuses paths outside the directory of views.
func (v *Views) within(path string) error {
	if err := storage.ValidatePath(path); err != nil {
		return err
	}
	if !strings.HasPrefix(path, v.o.Dir+"/") {
		return fault.New(fault.Invalid, "%s is not below %s", path, v.o.Dir)
	}
	return nil
}
