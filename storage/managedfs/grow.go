package managedfs

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/storage"
	"hostler/storage/blockdevice"
	"hostler/storage/mounts"
)

// GrowFilesystems implements storage.FilesystemGrower. Each filesystem grows to
// the size of its device. The error for an unmounted filesystem is
// fault.NotReady; such a filesystem grows when it is next attached.
func (s *Source) GrowFilesystems(ctx context.Context, filesystems []storage.GrowParams) []storage.Result[storage.Filesystem] {
	return storage.Each(ctx, filesystems, storage.Described("grow the filesystem", s.grow, s.describe))
}

func (s *Source) grow(ctx context.Context, p storage.GrowParams) error {
	rec, err := s.owned(p.Ref)
	if err != nil {
		return err
	}
	defer s.working.lock(p.ID)()
	table, err := mounts.Read(s.o.Proc)
	if err != nil {
		return err
	}
	at := mountsOf(rec, table, newProbes())
	if len(at) == 0 {
		return fault.New(fault.NotReady, "it is not mounted")
	}
	for _, m := range at {
		if !mounts.ReadOnly(m) {
			return s.growAt(ctx, rec, m)
		}
	}
	return fault.New(fault.NeedsOperator, "it is mounted read-only")
}

func (s *Source) growAt(ctx context.Context, rec record, m *mountinfo.Info) error {
	if growable(rec.Type, m) == 0 {
		return nil
	}
	if rec.Type == "ext4" && !s.mayResize() {
		return fault.New(fault.NeedsOperator, "this process has no CAP_SYS_RESOURCE, without which the kernel does not grow a mounted ext4; it grows when it is next attached")
	}
	k := kinds[rec.Type]
	if err := s.ready(ctx, k, nil); err != nil {
		return err
	}
	grower := s.o.Grower
	if grower == nil {
		grower = s.o.Runner
	}
	if _, err := grower.Run(ctx, k.grow(m.Source, m.Mountpoint)); err != nil {
		return err
	}
	s.o.Log.Info("Grew a filesystem.", "path", m.Mountpoint, "device", m.Source)
	return nil
}

// mayResize reports whether the tools get CAP_SYS_RESOURCE.
func (s *Source) mayResize() bool {
	process := "self"
	if s.o.Grower != nil {
		process = "1"
	}
	data, _ := os.ReadFile(filepath.Join(s.o.Proc, process, "status"))
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			return err == nil && set&(1<<unix.CAP_SYS_RESOURCE) != 0
		}
	}
	return false
}

// growBefore grows an ext4 filesystem before it is mounted, if the process
// lacks the capability to grow a mounted filesystem. resize2fs requires that
// e2fsck has checked the filesystem.
func (s *Source) growBefore(ctx context.Context, rec record, device string) error {
	if rec.Type != "ext4" || s.mayResize() {
		return nil
	}
	f, size, err := blockdevice.Open(device, true)
	if err != nil {
		return nil // mounted already, or read-only
	}
	taken, err := extent(rec.Type, f, "")
	_ = f.Close() // the tools claim the device too
	if err != nil || size-taken < slack {
		return err
	}
	k := kinds[rec.Type]
	// Exit status 1 means that e2fsck corrected errors.
	err = s.tool(ctx, k, run.Command{Path: paths.E2fsck, Args: []string{"-f", "-p", device}})
	if code, ran := run.ExitCode(err); err != nil && (!ran || code != 1) {
		return err
	}
	return s.tool(ctx, k, run.Command{Path: paths.Resize2fs, Args: []string{device}})
}

// slack is the space in bytes that a filesystem may leave unused on its device,
// because ext4 drops a last block group that is too short for its tables.
const slack = 4 << 20

// leastResized is the smallest size to which the kernel resizes a btrfs.
const leastResized = 256 << 20

// growable returns the number of bytes by which the device exceeds the mounted
// filesystem, or 0 if this number is below slack or not known.
func growable(fstype string, m *mountinfo.Info) int64 {
	device, err := os.OpenFile(m.Source, os.O_RDONLY, 0)
	if err != nil {
		return 0
	}
	defer device.Close()
	size, err := device.Seek(0, 2)
	if err != nil {
		return 0
	}
	if fstype == "btrfs" && size < leastResized {
		return 0
	}
	taken, err := extent(fstype, device, m.Mountpoint)
	if err != nil || taken <= 0 || size-taken < slack {
		return 0
	}
	return size - taken
}

// extent returns the number of bytes of its device that a filesystem uses. path
// is the mount point, which ext4 does not need.
func extent(fstype string, device *os.File, path string) (int64, error) {
	switch fstype {
	case "ext4":
		// The device's page cache holds the present superblock of the mounted
		// filesystem.
		b := make([]byte, 1024)
		if _, err := device.ReadAt(b, 1024); err != nil {
			return 0, err
		}
		le := binary.LittleEndian
		blocks := int64(le.Uint32(b[0x4:])) | int64(le.Uint32(b[0x150:]))<<32
		return blocks << (10 + le.Uint32(b[0x18:])), nil
	case "xfs":
		return xfsExtent(path)
	}
	// btrfs reports the size of its whole device.
	size, _, err := mounts.Usage(path)
	return size, err
}

// xfsGeometry is the beginning of the kernel's struct xfs_fsop_geom_v1, which
// has 112 bytes.
type xfsGeometry struct {
	BlockSize  uint32
	_          [7]uint32
	DataBlocks uint64
	_          [72]byte
}

// xfsIOCGeometry is XFS_IOC_FSGEOMETRY_V1, _IOR('X', 100, 112 bytes).
const xfsIOCGeometry = 2<<30 | 112<<16 | 'X'<<8 | 100

func xfsExtent(path string) (int64, error) {
	dir, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	var g xfsGeometry
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), xfsIOCGeometry, uintptr(unsafe.Pointer(&g))); errno != 0 {
		return 0, errno
	}
	return int64(g.BlockSize) * int64(g.DataBlocks), nil
}
