package images

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/bits"
)

var squashfsMagic = []byte("hsqs")

// superblock is the header of a squashfs 4.0 file, little-endian, as in the
// kernel's documentation of the format.
type superblock struct {
	Magic, Inodes, Modified, BlockSize, Fragments                                   uint32
	Compression, BlockLog, Flags, IDs, Major, Minor                                 uint16
	Root, Used, IDTable, XattrTable, InodeTable, DirTable, FragmentTable, LookTable uint64
}

const (
	superblockSize = 96
	// maxTail bounds the padding after the filesystem, in bytes.
	maxTail = 1 << 20
	// maxPath is the longest path of a file in an image, in bytes.
	maxPath = 4096
)

// The kinds of inode. There are squashKinds basic kinds. The number of an
// extended kind is the basic kind's number plus squashKinds.
const (
	squashDir     = 1
	squashFile    = 2
	squashSymlink = 3
	squashKinds   = 7
)

// squashWalk visits every directory of a squashfs. It reads only the inode and
// directory tables, never the content of files.
type squashWalk struct {
	budget
	blocks squashBlocks
	sb     superblock
	seen   map[uint64]bool // inodes visited so far
	todo   []squashFolder
}

// squashFolder is a directory still to be read.
type squashFolder struct {
	block, offset, size int64
	path                int // length of its path in bytes
}

func scanSquashfs(ctx context.Context, r io.ReaderAt, size int64) error {
	sb, err := readSuperblock(r, size)
	if err != nil {
		return err
	}
	unpack, err := squashUnpacker(sb.Compression)
	if err != nil {
		return err
	}
	w := &squashWalk{
		budget: budget{packed: size}, sb: sb, seen: map[uint64]bool{},
		blocks: squashBlocks{r: r, end: int64(sb.Used), unpack: unpack, known: map[int64]squashBlock{}}, //nolint:gosec // checked against size
	}
	if err := w.inode(sb.Root, squashDir, 0); err != nil {
		return clean(err, "its inode table is damaged")
	}
	for len(w.todo) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		folder := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if err := w.folder(folder); err != nil {
			return clean(err, "its directory table is damaged")
		}
	}
	return nil
}

func readSuperblock(r io.ReaderAt, size int64) (superblock, error) {
	var sb superblock
	head := make([]byte, superblockSize)
	if _, err := r.ReadAt(head, 0); err != nil {
		return sb, refuse("it is too short for a squashfs")
	}
	if !bytes.HasPrefix(head, squashfsMagic) {
		return sb, refuse("its rootfs is not a squashfs")
	}
	if err := binary.Read(bytes.NewReader(head), binary.LittleEndian, &sb); err != nil {
		return sb, clean(err, "its superblock cannot be read")
	}
	switch {
	case sb.Major != 4 || sb.Minor != 0:
		return sb, refuse("its squashfs version is %d.%d, not 4.0", sb.Major, sb.Minor)
	case sb.Inodes == 0 || sb.Inodes > maxEntries:
		return sb, refuse("it has %d entries, not 1 to %d", sb.Inodes, maxEntries)
	case bits.OnesCount32(sb.BlockSize) != 1 || sb.BlockSize < 4<<10 || sb.BlockSize > 1<<20 || sb.BlockLog > 20 || 1<<sb.BlockLog != sb.BlockSize:
		return sb, refuse("its block size is %d", sb.BlockSize)
	case sb.Used < superblockSize || sb.Used > uint64(size): //nolint:gosec // a size is not negative
		return sb, refuse("it claims %d bytes and has %d", sb.Used, size)
	case uint64(size)-sb.Used > maxTail: //nolint:gosec // as above
		return sb, refuse("data follows the end of its squashfs")
	}
	for _, table := range []uint64{sb.IDTable, sb.InodeTable, sb.DirTable} {
		if table < superblockSize || table >= sb.Used {
			return sb, refuse("a table of it is outside the file")
		}
	}
	return sb, nil
}

// inode checks the inode at ref, whose directory entry has the given kind and a
// path of the given length. If it is a directory, inode appends it to w.todo.
func (w *squashWalk) inode(ref uint64, kind uint16, path int) error {
	if w.seen[ref] {
		if kind == squashDir {
			return refuse("a folder of its rootfs is in two places")
		}
		return nil // a hard link
	}
	w.seen[ref] = true
	in := w.blocks.at(int64(w.sb.InodeTable)+int64(ref>>16&0xffffffff), int64(ref&0xffff)) //nolint:gosec // bounded by the checks of at
	head, err := in.take(16)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	own := le.Uint16(head)
	if own != kind && own != kind+squashKinds {
		return refuse("an inode of its rootfs is of type %d and its entry of type %d", own, kind)
	}
	switch own {
	case squashDir:
		d, err := in.take(16)
		if err != nil {
			return err
		}
		w.todo = append(w.todo, squashFolder{int64(le.Uint32(d)), int64(le.Uint16(d[10:])), int64(le.Uint16(d[8:])), path})
	case squashDir + squashKinds:
		d, err := in.take(24)
		if err != nil {
			return err
		}
		w.todo = append(w.todo, squashFolder{int64(le.Uint32(d[8:])), int64(le.Uint16(d[18:])), int64(le.Uint32(d[4:])), path})
	case squashFile:
		d, err := in.take(16)
		if err != nil {
			return err
		}
		return w.grow(int64(le.Uint32(d[12:])))
	case squashFile + squashKinds:
		d, err := in.take(16)
		if err != nil {
			return err
		}
		return w.grow(int64(le.Uint64(d[8:]))) //nolint:gosec // grow refuses negative sizes
	case squashSymlink, squashSymlink + squashKinds:
		d, err := in.take(8)
		if err != nil {
			return err
		}
		if n := le.Uint32(d[4:]); n == 0 || n > maxPath {
			return refuse("a link of its rootfs is %d bytes long", n)
		}
	}
	return nil
}

// folder reads the entries of a directory.
func (w *squashWalk) folder(f squashFolder) error {
	// The size includes three bytes for . and .., which are not stored.
	left := f.size - 3
	in := w.blocks.at(int64(w.sb.DirTable)+f.block, f.offset) //nolint:gosec // checked against size
	le := binary.LittleEndian
	last := ""
	for left > 0 {
		head, err := in.take(12)
		if err != nil {
			return err
		}
		left -= 12
		count, start := le.Uint32(head), uint64(le.Uint32(head[4:]))
		if count > 255 {
			return refuse("a folder of its rootfs has a list of %d entries", count)
		}
		for range count + 1 {
			e, err := in.take(8)
			if err != nil {
				return err
			}
			ref, kind, length := start<<16|uint64(le.Uint16(e)), le.Uint16(e[4:]), int(le.Uint16(e[6:]))+1
			raw, err := in.take(length)
			if err != nil {
				return err
			}
			name := string(raw)
			if left -= 8 + int64(length); left < 0 {
				return refuse("a folder of its rootfs is longer than its recorded length")
			}
			if err := w.name(name, last, f.path+1+length); err != nil {
				return err
			}
			if kind < squashDir || kind > squashKinds {
				return refuse("an entry of its rootfs has the unknown type %d", kind)
			}
			last = name
			if err := w.inode(ref, kind, f.path+1+length); err != nil {
				return err
			}
		}
	}
	return nil
}

// name checks an entry's name and that it sorts after the last name. So no name
// occurs twice, and no link has the same name as a directory.
func (w *squashWalk) name(name, last string, path int) error {
	if err := w.entry(name); err != nil {
		return err
	}
	if name == "." || name == ".." || bytes.ContainsAny([]byte(name), "/\x00") || len(name) > 256 {
		return refuse("an entry of its rootfs has the name %q", clip(name))
	}
	if last != "" && name <= last {
		return refuse("the entries %q and %q of its rootfs are doubled or out of order", clip(last), clip(name))
	}
	if path > maxPath {
		return refuse("a path in its rootfs is longer than %d bytes", maxPath)
	}
	return nil
}
