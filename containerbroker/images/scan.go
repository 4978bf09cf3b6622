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
	// maxImageSize is the largest image file in bytes.
	maxImageSize = 8 << 30
	// maxUnpacked is the largest unpacked size of an image, in bytes.
	maxUnpacked = 32 << 30
	// maxEntries is the largest number of files, directories, links and nodes
	// in an image.
	maxEntries = 500_000
	// maxRatio is the largest ratio of unpacked to packed size.
	maxRatio = 100
	// ratioGrace is how many unpacked bytes maxRatio does not limit, because
	// tar pads small archives with zeros.
	ratioGrace = 4 << 20
	// maxNames bounds the memory for the names in an archive, in bytes.
	maxNames = 64 << 20
)

// Part is the role of a file in an image.
type Part string

// The parts of images.
const (
	partUnified  Part = "unified"  // tar with metadata.yaml and rootfs/
	partMetadata Part = "metadata" // tar with metadata.yaml, without rootfs/
	partRootfs   Part = "rootfs"   // squashfs
	partDisk     Part = "disk"     // qcow2, or raw with a boot sector
)

// Expect holds the requirements that a scan checks.
type Expect struct {
	Part Part
	// Arch is the required architecture in Debian's terms; empty accepts any.
	Arch string
}

// scanFile reads a whole image file, without writing or running anything. It
// refuses images that could reach beyond their instance or exhaust the host.
// Every refusal is fault.Invalid and says why. The scan's memory and the number
// of bytes that it reads are bounded.
func scanFile(ctx context.Context, r io.ReaderAt, size int64, expect Expect) error {
	if size > maxImageSize {
		return refuse("it has %d bytes, more than 8 GiB", size)
	}
	var err error
	switch expect.Part {
	case partUnified, partMetadata:
		err = scanTar(ctx, r, size, expect)
	case partRootfs:
		err = scanSquashfs(ctx, r, size)
	case partDisk:
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
	if b.entries > maxEntries {
		return refuse("it has more than %d entries", maxEntries)
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
	if b.bytes > maxUnpacked {
		return refuse("it unpacks to more than %d GiB", maxUnpacked>>30)
	}
	if b.bytes > b.packed*maxRatio+ratioGrace {
		return refuse("it unpacks to more than %d times its size", maxRatio)
	}
	return nil
}

var qcow2Magic = []byte("QFI\xfb")

// scanDisk checks a qcow2 header, mainly so that the disk cannot refer to
// another file. QEMU's docs/interop/qcow2.txt has the layout. If the disk is
// not qcow2, it must be raw.
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
		// Bits 3 (compression type) and 4 (extended entries) are accepted. Bit
		// 0 means dirty, 1 corrupt and 2 an external data file.
		if features := be.Uint64(head[72:]); features&^uint64(1<<3|1<<4) != 0 {
			return refuse("the disk has the incompatible features %#x (an external data file, or damage)", features)
		}
	}
	return nil
}

// foreignDisks maps the magic bytes of refused disk formats to their names.
// They can refer to other files, or images never use them.
var foreignDisks = map[string]string{
	"KDMV": "VMDK", "COWD": "VMDK", "# Di": "VMDK", "cone": "VHD", "vhdx": "VHDX", "<<< ": "VDI", "QED\x00": "QED", "LUKS": "LUKS",
}

// scanRaw accepts a raw disk with a boot sector. Its content cannot refer to
// another file, because drivers always read the disk as raw.
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
