package images

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"hostler/internal/fault"
)

// The bounds of accepted images.
const (
	// MaxSize is the largest image file in bytes.
	MaxSize = 8 << 30
	// MaxUnpacked is the most that an image may hold unpacked, in bytes.
	MaxUnpacked = 32 << 30
	// MaxEntries is the largest number of files, directories, links and nodes
	// in an image.
	MaxEntries = 500_000
	// MaxRatio is the largest ratio of unpacked to packed size.
	MaxRatio = 100
	// ratioGrace lets small archives of mostly zeros pass: tar itself pads.
	ratioGrace = 4 << 20
	// maxNames bounds the memory for the names in an archive, in bytes.
	maxNames = 64 << 20
)

// Part is the role of a file in an image.
type Part string

// The parts.
const (
	PartUnified  Part = "unified"  // tar with metadata.yaml and rootfs/
	PartMetadata Part = "metadata" // tar with metadata.yaml, without rootfs/
	PartRootfs   Part = "rootfs"   // squashfs
	PartDisk     Part = "disk"     // qcow2, or raw with a boot sector
)

// Expect holds the requirements that a scan checks.
type Expect struct {
	Part Part
	// Arch is the required architecture in Debian's terms; empty accepts any.
	Arch string
}

// Scan reads a whole image file, without writing or running anything. It
// refuses images that could reach beyond their instance or exhaust the host.
// Every refusal is fault.Invalid and says why. Scan runs in the calling
// process; its memory and the bytes read are bounded.
func Scan(ctx context.Context, r io.ReaderAt, size int64, expect Expect) error {
	if size > MaxSize {
		return refuse("it has %d bytes, more than 8 GiB", size)
	}
	var err error
	switch expect.Part {
	case PartUnified, PartMetadata:
		err = scanTar(ctx, r, size, expect)
	case PartRootfs:
		err = scanSquashfs(ctx, r, size)
	case PartDisk:
		err = scanDisk(r, size)
	default:
		err = refuse("its expected format %q is unknown", expect.Part)
	}
	return err
}

func refuse(format string, args ...any) error {
	return fault.New(fault.Invalid, "the image is refused: "+format, args...)
}

// budget counts the unpacked entries, bytes and names of an image.
type budget struct {
	packed  int64
	entries int
	bytes   int64
	names   int64
}

func (b *budget) entry(name string) error {
	b.entries++
	b.names += int64(len(name))
	if b.entries > MaxEntries {
		return refuse("it has more than %d entries", MaxEntries)
	}
	if b.names > maxNames {
		return refuse("its names are longer than %d MiB together", maxNames>>20)
	}
	return nil
}

func (b *budget) grow(n int64) error {
	if n < 0 || b.bytes > math.MaxInt64-n {
		return refuse("it has an impossible size")
	}
	b.bytes += n
	if b.bytes > MaxUnpacked {
		return refuse("it unpacks to more than %d GiB", MaxUnpacked>>30)
	}
	if b.bytes > b.packed*MaxRatio+ratioGrace {
		return refuse("it unpacks to more than %d times its size", MaxRatio)
	}
	return nil
}

var qcow2Magic = []byte("QFI\xfb")

// scanDisk checks a qcow2 header: the disk must not refer to another file. The
// layout is that of QEMU's docs/interop/qcow2.txt.
func scanDisk(r io.ReaderAt, size int64) error {
	head := make([]byte, 104)
	if _, err := r.ReadAt(head, 0); err != nil && (err != io.EOF || size < 72) {
		return refuse("it is too short for a qcow2 disk")
	}
	if string(head[:4]) != string(qcow2Magic) {
		return scanRaw(r, head)
	}
	be := binary.BigEndian
	version := be.Uint32(head[4:])
	if version != 2 && version != 3 {
		return refuse("its qcow2 version is %d, not 2 or 3", version)
	}
	if be.Uint64(head[8:]) != 0 || be.Uint32(head[16:]) != 0 {
		return refuse("the disk names a backing file")
	}
	if bits := be.Uint32(head[20:]); bits < 9 || bits > 21 {
		return refuse("its cluster size is 2^%d bytes", bits)
	}
	if virtual := be.Uint64(head[24:]); virtual == 0 || virtual > 2<<40 {
		return refuse("the disk claims %d bytes", virtual)
	}
	if be.Uint32(head[32:]) != 0 {
		return refuse("the disk is encrypted")
	}
	if n := be.Uint32(head[60:]); n > 64 {
		return refuse("the disk has %d snapshots", n)
	}
	if version == 3 {
		// Bit 2 is an external data file; 0 dirty, 1 corrupt, 3 compression
		// type, 4 extended entries.
		if features := be.Uint64(head[72:]); features&^uint64(1<<3|1<<4) != 0 {
			return refuse("the disk has the incompatible features %#x (an external data file, or damage)", features)
		}
	}
	return nil
}

// foreignDisks are the magic bytes of disk formats that can refer to other
// files or that images never use.
var foreignDisks = map[string]string{
	"KDMV": "VMDK", "COWD": "VMDK", "# Di": "VMDK", "cone": "VHD", "vhdx": "VHDX", "<<< ": "VDI", "QED\x00": "QED", "LUKS": "LUKS",
}

// scanRaw accepts a raw disk with a boot sector. Drivers attach it as raw only,
// so that no content of it can name another file.
func scanRaw(r io.ReaderAt, head []byte) error {
	if name := foreignDisks[string(head[:4])]; name != "" {
		return refuse("it is a %s disk, neither qcow2 nor raw", name)
	}
	if !bootable(r) {
		return refuse("it is neither a qcow2 disk nor a raw disk with a boot sector")
	}
	return nil
}

// bootable reports whether the first sector has the signature of a boot sector.
func bootable(r io.ReaderAt) bool {
	mark := make([]byte, 2)
	_, err := r.ReadAt(mark, 510)
	return err == nil && mark[0] == 0x55 && mark[1] == 0xaa
}

// clean turns a decoder's error about damaged input into a refusal.
func clean(err error, what string) error {
	if err == nil || fault.KindOf(err) == fault.Invalid {
		return err
	}
	return fault.Wrap(fault.Invalid, fmt.Errorf("the image is refused: %s: %w", what, err))
}
