package kvm

import (
	"encoding/binary"
	"strings"
	"unicode/utf16"
)

// isoFile is a file inside an ISO image.
type isoFile struct {
	name    string
	content []byte
}

// The layout of a small ISO 9660 image (ECMA-119), in sectors of 2 KiB. After
// 16 reserved sectors come the volume descriptors of the two trees, a
// terminator, the path tables and root folders of both trees, and then the
// files. The second tree is Joliet's, which keeps file names unchanged.
const (
	sector       = 2048
	isoPrimary   = 16
	isoJoliet    = 17
	isoEnd       = 18
	isoPathL     = 19 // little-endian path table; the big-endian one and Joliet's two follow
	isoRoot      = 23
	isoJolietTop = 24
	isoFiles     = 25
)

// isoImage builds an image with the files in its root folder. The same
// arguments give the same bytes. Each root folder has a single sector, which is
// enough for some thirty files.
func isoImage(label string, files []isoFile) []byte {
	at := make([]uint32, len(files))
	next := uint32(isoFiles)
	for i, f := range files {
		at[i] = next
		next += max(uint32((len(f.content)+sector-1)/sector), 1)
	}
	image := make([]byte, int(next)*sector)
	put := func(n uint32, data []byte) { copy(image[int(n)*sector:], data) }
	put(isoPrimary, volumeDescriptor(1, label, next, isoRoot, isoPathL, nil))
	put(isoJoliet, volumeDescriptor(2, label, next, isoJolietTop, isoPathL+2, []byte("%/E")))
	put(isoEnd, append([]byte{255}, "CD001\x01"...))
	for i, top := range []uint32{isoRoot, isoJolietTop} {
		put(isoPathL+uint32(2*i), append(binary.LittleEndian.AppendUint32([]byte{1, 0}, top), 1, 0, 0, 0))
		put(isoPathL+uint32(2*i)+1, append(binary.BigEndian.AppendUint32([]byte{1, 0}, top), 0, 1, 0, 0))
		folder := append(directoryRecord("\x00", top, sector, true), directoryRecord("\x01", top, sector, true)...)
		for k, f := range files {
			// Plain ISO 9660 names are in upper case. Linux shows them in lower
			// case.
			name := strings.ToUpper(f.name)
			if top == isoJolietTop {
				name = string(wide(f.name))
			}
			folder = append(folder, directoryRecord(name, at[k], uint32(len(f.content)), false)...)
		}
		put(top, folder)
	}
	for i, f := range files {
		put(at[i], f.content)
	}
	return image
}

// isoRead returns the files of an image that isoImage() built, or nil if the
// image is damaged.
func isoRead(image []byte) []isoFile {
	var files []isoFile
	if len(image) < isoFiles*sector {
		return nil
	}
	for folder := image[isoRoot*sector : (isoRoot+1)*sector]; len(folder) > 33 && folder[0] > 33; folder = folder[folder[0]:] {
		at, size, end := binary.LittleEndian.Uint32(folder[2:]), binary.LittleEndian.Uint32(folder[10:]), 33+int(folder[32])
		if end > int(folder[0]) || int(folder[0]) > len(folder) || int64(at)*sector+int64(size) > int64(len(image)) {
			return nil
		}
		if name := string(folder[33:end]); name > "\x01" { // the first two entries are the folder itself and its parent
			files = append(files, isoFile{strings.ToLower(name), image[int64(at)*sector : int64(at)*sector+int64(size)]})
		}
	}
	return files
}

// wide encodes a text in UCS-2, as Joliet requires.
func wide(text string) []byte {
	var out []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		out = binary.BigEndian.AppendUint16(out, unit)
	}
	return out
}

// both16 and both32 write a number in both byte orders.
func both16(b []byte, n uint16) {
	binary.LittleEndian.PutUint16(b, n)
	binary.BigEndian.PutUint16(b[2:], n)
}

func both32(b []byte, n uint32) {
	binary.LittleEndian.PutUint32(b, n)
	binary.BigEndian.PutUint32(b[4:], n)
}

// volumeDescriptor returns the volume descriptor of a tree. escape is the mark
// of Joliet's tree, and nil for the plain tree.
func volumeDescriptor(kind byte, label string, sectors, top, paths uint32, escape []byte) []byte {
	d := make([]byte, sector)
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			d[i] = ' '
			if escape != nil && (i-from)%2 == 0 {
				d[i] = 0 // a blank has two bytes in Joliet
			}
		}
	}
	d[0] = kind
	copy(d[1:], "CD001\x01")
	blank(8, 40)
	blank(40, 72)
	if escape != nil {
		copy(d[40:72], wide(label))
	} else {
		copy(d[40:72], label)
	}
	both32(d[80:], sectors)
	copy(d[88:], escape)
	both16(d[120:], 1) // one volume
	both16(d[124:], 1)
	both16(d[128:], sector)
	both32(d[132:], 10) // the length of the path table
	binary.LittleEndian.PutUint32(d[140:], paths)
	binary.BigEndian.PutUint32(d[148:], paths+1)
	copy(d[156:], directoryRecord("\x00", top, sector, true))
	blank(190, 813)
	for _, date := range []int{813, 830, 847, 864} {
		copy(d[date:], "0000000000000000")
	}
	d[881] = 1
	return d
}

// directoryRecord returns an entry of a folder.
func directoryRecord(name string, at, size uint32, folder bool) []byte {
	length := 33 + len(name)
	length += length & 1
	r := make([]byte, length)
	r[0] = byte(length)
	both32(r[2:], at)
	both32(r[10:], size)
	copy(r[18:], []byte{70, 1, 1, 0, 0, 0, 0})
	if folder {
		r[25] = 2
	}
	both16(r[28:], 1)
	r[32] = byte(len(name))
	copy(r[33:], name)
	return r
}
