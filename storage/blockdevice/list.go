// Package blockdevice lists the host's block devices with the formats found on
// them, and sends events when the kernel adds, changes or removes a device. It
// only reads.
package blockdevice

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"hostler/storage/mounts"
)

// Device is a block device.
type Device struct {
	// Name is the kernel's name, which may change at the next start.
	Name string
	// Path is the device node. Links are udev's other paths to the device.
	Path  string
	Links []string
	// Type is disk, part, loop, md, lvm, crypt or dm.
	Type string
	// Size is in bytes.
	Size         int64
	Major, Minor uint32
	ReadOnly     bool
	// Parent is the name of a partition's disk.
	Parent string
	// WWN and Serial are the hardware's own ids; HardwareID joins bus and
	// serial number, e.g. ata-NAME_SERIAL.
	WWN, Serial, HardwareID, Model string
	// Backing is the file behind a loop device.
	Backing string
	// Signatures are the formats found on the device. Unreadable is the reason
	// why the device could not be read, or "".
	Signatures []Signature
	Unreadable string
	// MountPoints are the device's mount points in the caller's mount namespace.
	MountPoints []string
	// InUse is true if the device or one of its partitions is mounted, used as
	// swap, or part of another device.
	InUse bool
}

// Host holds the directories to read.
type Host struct {
	// Dev, Sys, Proc and Run default to /dev, /sys, /proc and /run.
	Dev, Sys, Proc, Run string
}

func (h Host) defaults() Host {
	for field, fallback := range map[*string]string{&h.Dev: "/dev", &h.Sys: "/sys", &h.Proc: "/proc", &h.Run: "/run"} {
		if *field == "" {
			*field = fallback
		}
	}
	return h
}

// List returns every usable block device, sorted by name. It leaves out
// floppies, memory disks, network and optical drives, loop devices without a
// file, devices of size 0 and devices without a device node.
//
// List reads from the kernel's tables whether a device is in use. It does not
// open devices exclusively, because a concurrent mount by another process could
// then fail.
func (h Host) List(ctx context.Context) ([]Device, error) {
	h = h.defaults()
	disks, err := os.ReadDir(filepath.Join(h.Sys, "block"))
	if err != nil {
		return nil, fmt.Errorf("cannot list block devices: %w", err)
	}
	table, err := mounts.Read(h.Proc)
	if err != nil {
		return nil, err
	}
	swaps := h.swaps()
	var all []Device
	for _, disk := range disks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		dir := filepath.Join(h.Sys, "block", disk.Name())
		d, ok := h.read(dir, disk.Name(), "")
		if !ok {
			continue
		}
		at := len(all)
		all = append(all, d)
		parts, _ := filepath.Glob(filepath.Join(dir, "*/partition"))
		for _, part := range parts {
			dir := filepath.Dir(part)
			if p, ok := h.read(dir, filepath.Base(dir), d.Name); ok {
				all = append(all, p)
			}
		}
		for i := at; i < len(all); i++ {
			h.use(&all[i], table, swaps)
			all[at].InUse = all[at].InUse || all[i].InUse
		}
	}
	slices.SortFunc(all, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// read reads a device, or returns false if the device is not usable. dir is the
// device's folder in sysfs. parent is the disk of a partition, or "".
func (h Host) read(dir, name, parent string) (Device, bool) {
	// A sysfs name has ! in place of a slash in the device's name.
	d := Device{Name: name, Parent: parent, Path: filepath.Join(h.Dev, strings.ReplaceAll(name, "!", "/"))}
	for _, skipped := range []string{"fd", "ram", "zram", "nbd", "sr"} {
		if number, ok := strings.CutPrefix(name, skipped); ok && parent == "" {
			if _, err := strconv.Atoi(number); err == nil {
				return d, false
			}
		}
	}
	sectors, err := strconv.ParseInt(value(dir, "size"), 10, 64)
	if err != nil || sectors <= 0 {
		return d, false
	}
	d.Size = sectors * 512 // sysfs counts units of 512 bytes, whatever the device's sector size
	if _, err := fmt.Sscanf(value(dir, "dev"), "%d:%d", &d.Major, &d.Minor); err != nil {
		return d, false
	}
	var s unix.Stat_t
	if unix.Stat(d.Path, &s) != nil || s.Mode&unix.S_IFMT != unix.S_IFBLK || s.Rdev != unix.Mkdev(d.Major, d.Minor) {
		return d, false
	}
	d.ReadOnly = value(dir, "ro") == "1"
	d.Type = kind(dir, name, parent)
	if d.Type == "loop" {
		if d.Backing = value(dir, "loop/backing_file"); d.Backing == "" {
			return d, false
		}
	}
	h.identify(&d, dir)
	d.Signatures, err = probePath(d.Path, d.Size)
	if err != nil {
		d.Unreadable = err.Error()
	}
	return d, true
}

func kind(dir, name, parent string) string {
	uuid := value(dir, "dm/uuid")
	switch {
	case parent != "":
		return "part"
	case strings.HasPrefix(name, "loop"):
		return "loop"
	case strings.HasPrefix(name, "md"):
		return "md"
	case strings.HasPrefix(uuid, "LVM-"):
		return "lvm"
	case strings.HasPrefix(uuid, "CRYPT-"):
		return "crypt"
	case strings.HasPrefix(name, "dm-"):
		return "dm"
	}
	return "disk"
}

// identify sets the device's links and ids. It takes each id from udev's data
// if possible, else from sysfs.
func (h Host) identify(d *Device, dir string) {
	env := map[string]string{}
	data, _ := os.ReadFile(filepath.Join(h.Run, "udev/data", fmt.Sprintf("b%d:%d", d.Major, d.Minor)))
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if link, ok := strings.CutPrefix(line, "S:"); ok {
			d.Links = append(d.Links, filepath.Join(h.Dev, link))
		}
		if pair, ok := strings.CutPrefix(line, "E:"); ok {
			key, v, _ := strings.Cut(pair, "=")
			env[key] = v
		}
	}
	slices.Sort(d.Links)
	first := func(values ...string) string {
		for _, v := range values {
			if v = clean(v); v != "" {
				return v
			}
		}
		return ""
	}
	d.WWN = first(env["ID_WWN_WITH_EXTENSION"], env["ID_WWN"], value(dir, "device/wwid"), value(dir, "wwid"))
	d.Serial = first(env["ID_SERIAL_SHORT"], env["ID_SERIAL"], value(dir, "serial"), value(dir, "device/serial"))
	d.Model = first(env["ID_MODEL"], value(dir, "device/model"))
	if env["ID_BUS"] != "" && env["ID_SERIAL"] != "" {
		d.HardwareID = clean(env["ID_BUS"] + "-" + env["ID_SERIAL"])
	}
}

func (h Host) use(d *Device, table mounts.Table, swaps []string) {
	for _, m := range table.OfDevice(d.Path, unix.Mkdev(d.Major, d.Minor)) {
		d.MountPoints = append(d.MountPoints, m.Mountpoint)
	}
	dir := filepath.Join(h.Sys, "block", d.Parent, d.Name)
	holders, _ := os.ReadDir(filepath.Join(dir, "holders"))
	d.InUse = len(d.MountPoints) > 0 || len(holders) > 0 || slices.Contains(swaps, d.Path)
}

func (h Host) swaps() (paths []string) {
	data, _ := os.ReadFile(filepath.Join(h.Proc, "swaps"))
	for line := range strings.Lines(string(data)) {
		if path, _, _ := strings.Cut(line, " "); strings.HasPrefix(path, "/") {
			paths = append(paths, path)
		}
	}
	return paths
}

// Preferred returns the path by which to remember the device. It prefers udev's
// link by WWN, then the link by hardware id, another link, the link by the UUID
// of the contents, and the device node last. The caller must still verify the
// device behind the path before each use.
func (d Device) Preferred() string {
	var uuid string
	if len(d.Signatures) > 0 {
		uuid = d.Signatures[0].UUID
	}
	for _, want := range []struct{ id, prefix string }{{d.WWN, "wwn-"}, {d.HardwareID, ""}} {
		for _, link := range d.Links {
			if want.id != "" && strings.Contains(link, "/by-id/") && strings.HasSuffix(link, "/"+want.prefix+want.id) {
				return link
			}
		}
	}
	byUUID := ""
	for _, link := range d.Links {
		if uuid == "" || filepath.Base(link) != uuid {
			return link
		}
		byUUID = link
	}
	if byUUID != "" {
		return byUUID
	}
	return d.Path
}

// value returns an attribute's value, or "" if the attribute is missing.
func value(dir, name string) string {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func probePath(path string, size int64) ([]Signature, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot read the device: %w", err)
	}
	defer f.Close()
	return Probe(f, size)
}

// ErrClaimed says that the kernel holds a device exclusively for another user.
var ErrClaimed = errors.New("the device is mounted or part of another device")

// Open opens a block device for an exclusive step, e.g. making a filesystem. It
// returns ErrClaimed if the device is mounted, in any mount namespace, or part
// of another device. The open file claims the device. size is in bytes.
func Open(path string, write bool) (f *os.File, size int64, err error) {
	flags := os.O_RDONLY
	if write {
		flags = os.O_RDWR
	}
	f, err = os.OpenFile(path, flags|unix.O_EXCL|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, 0, ErrClaimed
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode()&os.ModeDevice == 0 || err == nil && info.Mode()&os.ModeCharDevice != 0 {
		err = fmt.Errorf("%s is not a block device", path)
	}
	if err == nil {
		size, err = f.Seek(0, 2)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, size, nil
}
