package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

const goodMetadata = `architecture: x86_64
creation_date: 1763600000
properties: {description: a test, os: Test, release: "1"}
templates:
  /etc/hostname: {when: [create, copy], create_only: false, template: hostname.tpl}
`

// file is an entry of an archive under test.
type file struct {
	name string
	kind byte // 0: a regular file
	body string
	link string
	size int64 // claimed, if different from the body's
}

// good is an accepted archive; tests append to it or replace parts.
func good() []file {
	return []file{
		{name: "metadata.yaml", body: goodMetadata},
		{name: "templates/", kind: tar.TypeDir},
		{name: "templates/hostname.tpl", body: "{{ container.name }}\n"},
		{name: "rootfs/", kind: tar.TypeDir},
		{name: "rootfs/bin/", kind: tar.TypeDir},
		{name: "rootfs/bin/sh", body: "#!"},
		{name: "rootfs/bin/bash", kind: tar.TypeLink, link: "rootfs/bin/sh"},
		{name: "rootfs/sbin", kind: tar.TypeSymlink, link: "/bin"},
		{name: "rootfs/dev/null", kind: tar.TypeChar},
	}
}

// with is good with entries added, or replaced by name.
func with(more ...file) []file {
	all := good()
next:
	for _, m := range more {
		for i := range all {
			if all[i].name == m.name {
				all[i] = m
				continue next
			}
		}
		all = append(all, m)
	}
	return all
}

func without(name string) []file {
	var all []file
	for _, f := range good() {
		if f.name != name {
			all = append(all, f)
		}
	}
	return all
}

func pack(t testing.TB, files []file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Linkname: f.link, Mode: 0o644, Size: int64(len(f.body))}
		if f.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if f.size != 0 {
			h.Size = f.size
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatalf("%.80s: %v", f.name, err)
		}
		if f.size != 0 {
			return b.Bytes() // only the claim matters; the rest is missing
		}
		if _, err := w.Write([]byte(f.body)); err != nil {
			t.Fatalf("%.80s: %v", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gz(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zst(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

func xzip(t testing.TB, data []byte, config xz.WriterConfig) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := config.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// node is an entry of a squashfs under test.
type node struct {
	name     string
	kind     uint16 // of the directory entry: 1 directory, 2 file, 3 link, 4 block device
	inode    uint16 // type of the inode, if different from kind
	size     uint64 // of a file (inode type 9), or length of a link
	loop     bool   // the entry points to the root again
	children []node
}

// squash writes a squashfs whose tables are single unpacked blocks.
type squash struct {
	inodes, dirs []byte
	patch        []func(head []byte) // changes of the superblock
}

func (s *squash) add(n node) (offset int) {
	le := binary.LittleEndian
	type entry struct {
		node
		offset int
	}
	var entries []entry
	for _, c := range n.children {
		if !c.loop {
			entries = append(entries, entry{c, s.add(c)})
		} else {
			entries = append(entries, entry{c, -1})
		}
	}
	offset = len(s.inodes)
	for i := range entries {
		if entries[i].loop {
			entries[i].offset = offset
		}
	}
	inode := n.inode
	if inode == 0 {
		inode = n.kind
	}
	head := le.AppendUint16(nil, inode)
	head = append(head, make([]byte, 14)...)
	switch inode {
	case 1:
		var list []byte
		if len(entries) > 0 {
			list = le.AppendUint32(list, uint32(len(entries)-1))
			list = append(list, make([]byte, 8)...)
		}
		for _, e := range entries {
			list = le.AppendUint16(list, uint16(e.offset))
			list = le.AppendUint16(list, 0)
			list = le.AppendUint16(list, e.kind)
			list = le.AppendUint16(list, uint16(len(e.name)-1))
			list = append(list, e.name...)
		}
		head = append(head, make([]byte, 8)...)
		head = le.AppendUint16(head, uint16(len(list)+3))
		head = le.AppendUint16(head, uint16(len(s.dirs)))
		head = append(head, make([]byte, 4)...)
		s.dirs = append(s.dirs, list...)
	case 9:
		head = append(head, make([]byte, 8)...)
		head = le.AppendUint64(head, n.size)
		head = append(head, make([]byte, 24)...)
	case 3:
		head = append(head, make([]byte, 4)...)
		head = le.AppendUint32(head, uint32(n.size))
		head = append(head, make([]byte, n.size%100)...)
	default:
		head = append(head, make([]byte, 24)...)
	}
	s.inodes = append(s.inodes, head...)
	return offset
}

func (s squash) bytes(root node) []byte {
	le := binary.LittleEndian
	rootAt := s.add(root)
	block := func(data []byte) []byte { return append(le.AppendUint16(nil, uint16(len(data))|0x8000), data...) }
	out := make([]byte, 96)
	inodeAt := len(out)
	out = append(out, block(s.inodes)...)
	dirAt := len(out)
	out = append(out, block(s.dirs)...)
	idAt := len(out)
	out = append(out, block(make([]byte, 4))...)
	head := append([]byte("hsqs"), le.AppendUint32(nil, 100)...)
	for _, v := range []uint32{0, 128 << 10, 0} {
		head = le.AppendUint32(head, v)
	}
	for _, v := range []uint16{1, 17, 0, 1, 4, 0} {
		head = le.AppendUint16(head, v)
	}
	none := ^uint64(0)
	for _, v := range []uint64{uint64(rootAt), uint64(len(out)), uint64(idAt), none, uint64(inodeAt), uint64(dirAt), none, none} {
		head = le.AppendUint64(head, v)
	}
	copy(out, head)
	for _, p := range s.patch {
		p(out)
	}
	return out
}

// dir, reg and so on are nodes.
func dir(name string, children ...node) node { return node{name: name, kind: 1, children: children} }
func reg(name string, size uint64) node      { return node{name: name, kind: 2, inode: 9, size: size} }

func goodRoot() node {
	return dir("", dir("bin", reg("busybox", 1000), node{name: "sh", kind: 3, size: 7}), dir("dev", node{name: "null", kind: 4}), dir("etc"))
}

func crc(data []byte) uint32 { return crc32.ChecksumIEEE(data) }
