package images

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ulikunitz/xz"

	"hostler/internal/fault"
)

func scan(t testing.TB, data []byte, part Part) error {
	t.Helper()
	return scanFile(t.Context(), bytes.NewReader(data), int64(len(data)), Expect{Part: part, Arch: "amd64"})
}

func TestValidArchivesAreAccepted(t *testing.T) {
	plain := pack(t, good())
	dotted := good()
	for i := range dotted {
		dotted[i].name = "./" + dotted[i].name
	}
	const condition = `{% if config_get("user.x", "") == "" %}a{% else %}b{% endif %}`
	var long []file
	for i := range 600 {
		long = append(long, file{name: fmt.Sprintf("rootfs/usr/%0200d", i), body: "x"})
	}
	for name, c := range map[string]struct {
		data []byte
		part Part
	}{
		"tar":             {plain, partUnified},
		"tar.gz":          {gz(t, plain), partUnified},
		"tar.zst":         {zst(t, plain), partUnified},
		"tar.xz":          {xzip(t, plain, xz.WriterConfig{}), partUnified},
		"xz, small block": {xzip(t, pack(t, with(long...)), xz.WriterConfig{BlockSize: 100_000}), partUnified},
		"xz, crc32":       {xzip(t, plain, xz.WriterConfig{CheckSum: xz.CRC32}), partUnified},
		"xz, sha256":      {xzip(t, plain, xz.WriterConfig{CheckSum: xz.SHA256}), partUnified},
		"dotted names":    {pack(t, append([]file{{name: "./", kind: tar.TypeDir}}, dotted...)), partUnified},
		"no templates":    {pack(t, []file{{name: "metadata.yaml", body: "architecture: amd64\n"}, {name: "rootfs/", kind: tar.TypeDir}}), partUnified},
		"a condition":     {pack(t, with(file{name: "templates/hostname.tpl", body: condition})), partUnified},
		"metadata":        {pack(t, good()[:3]), partMetadata},
		"squashfs":        {squash{}.bytes(goodRoot()), partRootfs},
		"qcow2":           {qcow2(nil), partDisk},
		"qcow2, v2":       {qcow2(func(h []byte) { h[7] = 2 })[:72], partDisk},
	} {
		if err := scan(t, c.data, c.part); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func meta(text string) []file { return with(file{name: "metadata.yaml", body: text}) }

func qcow2(change func(head []byte)) []byte {
	be := binary.BigEndian
	head := make([]byte, 112)
	copy(head, "QFI\xfb")
	be.PutUint32(head[4:], 3)
	be.PutUint32(head[20:], 16)
	be.PutUint64(head[24:], 1<<30)
	if change != nil {
		change(head)
	}
	return head
}

func TestEvilArchivesAreRefused(t *testing.T) {
	big := xzip(t, pack(t, good()), xz.WriterConfig{})
	hugeWindow := bytes.Clone(big)
	setWindow(t, hugeWindow, 40)
	badRoot := func(children ...node) []byte { return squash{}.bytes(dir("", children...)) }
	patched := func(p func([]byte)) []byte { return squash{patch: []func([]byte){p}}.bytes(goodRoot()) }
	le := binary.LittleEndian

	for _, c := range []struct {
		name string
		data []byte
		part Part
		why  string
	}{
		{"empty", nil, "", "not a tar"},
		{"text", []byte(strings.Repeat("hello ", 200)), "", "not a tar"},
		{"bzip2", append([]byte("BZh9"), make([]byte, 600)...), "", "not a tar"},
		{"squashfs alone", squash{}.bytes(goodRoot()), "", "squashfs alone"},
		{"absolute name", pack(t, with(file{name: "/etc/passwd", body: "x"})), "", "absolute"},
		{"absolute in rootfs", pack(t, with(file{name: "//rootfs/x", body: "x"})), "", "absolute"},
		{"parent", pack(t, with(file{name: "../x", body: "x"})), "", "leaves its folder"},
		{"parent from rootfs", pack(t, with(file{name: "rootfs/../../x", body: "x"})), "", "leaves its folder"},
		{"parent that returns", pack(t, with(file{name: "rootfs/a/../b", body: "x"})), "", "leaves its folder"},
		{"parent in a long name", pack(t, with(file{name: "rootfs/" + strings.Repeat("a", 200) + "/../../../x", body: "x"})), "", "leaves its folder"},
		{"stray file", pack(t, with(file{name: "hooks/start", body: "x"})), "", "is not allowed in it"},
		{"backup.yaml", pack(t, with(file{name: "backup.yaml", body: "x"})), "", "is not allowed in it"},
		{"backup folder", pack(t, with(file{name: "backup/index.yaml", body: "x"})), "", "is not allowed in it"},
		{"metadata twice", pack(t, append(good(), file{name: "metadata.yaml", body: goodMetadata})), "", "twice"},
		{"metadata twice by ./", pack(t, append(good(), file{name: "./metadata.yaml", body: goodMetadata})), "", "twice"},
		{"metadata is a link", pack(t, with(file{name: "metadata.yaml", kind: tar.TypeSymlink, link: "/etc/shadow"})), "", "not a regular file"},
		{"metadata is a hard link", pack(t, append(without("metadata.yaml"), file{name: "metadata.yaml", kind: tar.TypeLink, link: "rootfs/bin/sh"})), "", "not a regular file"},
		{"metadata is a device", pack(t, with(file{name: "metadata.yaml", kind: tar.TypeChar})), "", "not a regular file"},
		{"metadata is a folder", pack(t, with(file{name: "metadata.yaml", kind: tar.TypeDir})), "", "not a regular file"},
		{"metadata is large", pack(t, meta(strings.Repeat("# x\n", 20_000))), "", "bytes, more than"},
		{"no metadata", pack(t, without("metadata.yaml")), "", "no metadata.yaml"},
		{"no rootfs", pack(t, good()[:3]), "", "no rootfs"},
		{"rootfs is a link", pack(t, append(good()[:3], file{name: "rootfs", kind: tar.TypeSymlink, link: "/"})), "", "must be of type"},
		{"rootfs is a file", pack(t, append(good()[:3], file{name: "rootfs", body: "x"})), "", "must be of type"},
		{"rootfs link after use", pack(t, with(file{name: "rootfs/bin", kind: tar.TypeSymlink, link: "/"})), "", "twice"},
		{"rootfs in metadata", pack(t, good()), partMetadata, "is not allowed in it"},
		{"templates is a link", pack(t, with(file{name: "templates/", kind: tar.TypeSymlink, link: "/etc"})), "", "must be of type"},
		{"template is a link", pack(t, with(file{name: "templates/hostname.tpl", kind: tar.TypeSymlink, link: "/etc/shadow"})), "", "not a regular file"},
		{"template in a folder", pack(t, with(file{name: "templates/a/b.tpl", body: "x"})), "", "not allowed"},
		{"template's name", pack(t, with(file{name: "templates/run.sh", body: "x"})), "", "not allowed"},
		{"template includes", pack(t, with(file{name: "templates/hostname.tpl", body: `{% include "/etc/shadow" %}`})), "", `statement "include"`},
		{"template reads", pack(t, with(file{name: "templates/hostname.tpl", body: `{%ssi "/etc/shadow"%}`})), "", `statement "ssi"`},
		{"template loops", pack(t, with(file{name: "templates/hostname.tpl", body: `{%- for a in b %}`})), "", `statement "for"`},
		{"template hides", pack(t, with(file{name: "templates/hostname.tpl", body: "{%\n\timport \"/x\" a %}"})), "", `statement "import"`},
		{"template is missing", pack(t, without("templates/hostname.tpl")), "", "is missing"},
		{"template elsewhere", pack(t, meta("architecture: x86_64\ntemplates:\n  /root/.ssh/authorized_keys: {when: [create], template: hostname.tpl}\n")), "", "would write"},
		{"template climbs", pack(t, meta("architecture: x86_64\ntemplates:\n  /etc/../root/x: {when: [create], template: hostname.tpl}\n")), "", "would write"},
		{"template from outside", pack(t, meta("architecture: x86_64\ntemplates:\n  /etc/hostname: {when: [create], template: ../../etc/shadow}\n")), "", "has the name"},
		{"template at a strange time", pack(t, meta("architecture: x86_64\ntemplates:\n  /etc/hostname: {when: [always], template: hostname.tpl}\n")), "", "unknown time"},
		{"unknown key", pack(t, meta("architecture: x86_64\nhooks: {start: sh}\n")), "", "cannot be read"},
		{"double key", pack(t, meta("architecture: x86_64\narchitecture: aarch64\n")), "", "cannot be read"},
		{"anchor", pack(t, meta("architecture: &a x86_64\nproperties: {os: *a}\n")), "", "anchor"},
		{"merge key", pack(t, meta("architecture: x86_64\nproperties:\n  <<: {os: x}\n")), "", "merge"},
		{"tag", pack(t, meta("architecture: !!str x86_64\n")), "", "tag"},
		{"two documents", pack(t, meta("architecture: x86_64\n---\narchitecture: x86_64\n")), "", "more than one document"},
		{"not YAML", pack(t, meta("\x00\x01{{{")), "", ""},
		{"no architecture", pack(t, meta("creation_date: 1\n")), "", "no architecture"},
		{"other architecture", pack(t, meta("architecture: aarch64\n")), "", "this host is amd64"},
		{"device outside", pack(t, with(file{name: "sda", kind: tar.TypeBlock})), "", "is not allowed in it"},
		{"device in templates", pack(t, with(file{name: "templates/x.tpl", kind: tar.TypeBlock})), "", "not a regular file"},
		{"hard link out", pack(t, with(file{name: "rootfs/x", kind: tar.TypeLink, link: "/etc/shadow"})), "", "absolute"},
		{"hard link up", pack(t, with(file{name: "rootfs/x", kind: tar.TypeLink, link: "rootfs/../../etc/shadow"})), "", "leaves its folder"},
		{"hard link to metadata", pack(t, with(file{name: "rootfs/x", kind: tar.TypeLink, link: "metadata.yaml"})), "", "leaves the rootfs"},
		{"hard link to nothing", pack(t, with(file{name: "rootfs/x", kind: tar.TypeLink, link: "rootfs/etc/shadow"})), "", "no earlier entry"},
		{"hard link through a link", pack(t, with(file{name: "rootfs/x", kind: tar.TypeLink, link: "rootfs/sbin/sh"})), "", "which is not a folder"},
		{"file beneath a link", pack(t, with(file{name: "rootfs/sbin/evil", body: "x"})), "", "which is not a folder"},
		{"file beneath a file", pack(t, with(file{name: "rootfs/bin/sh/evil", body: "x"})), "", "which is not a folder"},
		{"file twice", pack(t, append(good(), file{name: "rootfs/bin/sh", body: "y"})), "", "twice"},
		{"sparse file", retype(t, pack(t, with(file{name: "rootfs/x"})), "rootfs/x", tar.TypeGNUSparse), "", "sparse"},
		{"unknown type", retype(t, pack(t, with(file{name: "rootfs/x"})), "rootfs/x", 'Z'), "", "unknown type"},
		{"long name", pack(t, with(file{name: "rootfs/" + strings.Repeat("a/", 3000) + "x", body: "x"})), "", "longer than 4096"},
		{"claims too much", pack(t, with(file{name: "rootfs/x", size: 40 << 30})), "", "claims"},
		{"cut off", pack(t, good())[:2000], "", "damaged"},
		{"cut off in gzip", gz(t, pack(t, good()))[:150], "", "damaged"},
		{"second archive", append(pack(t, good()), pack(t, with(file{name: "backup.yaml", body: "x"}))...), "", "follows the end"},
		{"second gzip member", append(gz(t, pack(t, good())), gz(t, pack(t, good()))...), "", "follows the end"},
		{"second xz stream", append(bytes.Clone(big), big...), "", "follows the end"},
		{"bomb in gzip", gz(t, pack(t, with(file{name: "rootfs/x", body: strings.Repeat("\x00", 8<<20)}))), "", "times its size"},
		{"bomb in zstd", zst(t, pack(t, with(file{name: "rootfs/x", body: strings.Repeat("\x00", 8<<20)}))), "", "times its size"},
		{"xz with a huge window", hugeWindow, "", "too much memory"},

		{"squashfs, short", []byte("hsqs"), partRootfs, "too short"},
		{"squashfs, a tar", pack(t, good()), partRootfs, "not a squashfs"},
		{"squashfs, version", patched(func(h []byte) { le.PutUint16(h[28:], 3) }), partRootfs, "version"},
		{"squashfs, entries", patched(func(h []byte) { le.PutUint32(h[4:], 1<<30) }), partRootfs, "entries"},
		{"squashfs, block size", patched(func(h []byte) { le.PutUint32(h[12:], 3) }), partRootfs, "block size"},
		{"squashfs, longer than the file", patched(func(h []byte) { le.PutUint64(h[40:], 1<<40) }), partRootfs, "claims"},
		{"squashfs, compression", patched(func(h []byte) { le.PutUint16(h[20:], 5) }), partRootfs, "compression"},
		{"squashfs, table outside", patched(func(h []byte) { le.PutUint64(h[72:], 1<<40) }), partRootfs, "outside the file"},
		{"squashfs, root outside", patched(func(h []byte) { le.PutUint64(h[32:], 1<<40) }), partRootfs, "points outside"},
		{"squashfs, tail", append(squash{}.bytes(goodRoot()), make([]byte, 2<<20)...), partRootfs, "follows the end"},
		{"squashfs, parent", badRoot(reg("..", 1)), partRootfs, `name ".."`},
		{"squashfs, slash", badRoot(reg("a/b", 1)), partRootfs, `name "a/b"`},
		{"squashfs, NUL", badRoot(reg("a\x00b", 1)), partRootfs, "has the name"},
		{"squashfs, link before a folder", badRoot(node{name: "a", kind: 3, size: 5}, dir("a", reg("x", 1))), partRootfs, "doubled"},
		{"squashfs, out of order", badRoot(reg("b", 1), reg("a", 1)), partRootfs, "out of order"},
		{"squashfs, folder in itself", badRoot(node{name: "a", kind: 1, loop: true}), partRootfs, "two places"},
		{"squashfs, entry of another type", badRoot(node{name: "a", kind: 2, inode: 3, size: 4}), partRootfs, "its entry of type"},
		{"squashfs, unknown type", badRoot(node{name: "a", kind: 9, inode: 9}), partRootfs, "unknown type"},
		{"squashfs, huge file", badRoot(reg("a", 1<<50)), partRootfs, "unpacks to more"},
		{"squashfs, negative file", badRoot(reg("a", 1<<63)), partRootfs, "impossible size"},
		{"squashfs, ratio", badRoot(reg("a", 1<<30)), partRootfs, "times its size"},
		{"squashfs, long link", badRoot(node{name: "a", kind: 3, size: 1 << 20}), partRootfs, "bytes long"},

		{"qcow2, a tar", pack(t, good()), partDisk, "neither a qcow2"},
		{"qcow2, short", qcow2(nil)[:20], partDisk, "too short"},
		{"qcow2, version", qcow2(func(h []byte) { h[7] = 9 }), partDisk, "version"},
		{"qcow2, backing file", qcow2(func(h []byte) { h[15] = 104 }), partDisk, "backing file"},
		{"qcow2, data file", qcow2(func(h []byte) { h[79] = 4 }), partDisk, "incompatible"},
		{"qcow2, encrypted", qcow2(func(h []byte) { h[35] = 2 }), partDisk, "encrypted"},
		{"qcow2, snapshots", qcow2(func(h []byte) { h[63] = 65 }), partDisk, "snapshots"},
		{"qcow2, clusters", qcow2(func(h []byte) { h[23] = 60 }), partDisk, "cluster"},
		{"qcow2, size", qcow2(func(h []byte) { h[24] = 0x7f }), partDisk, "claims"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.part == "" {
				c.part = partUnified
			}
			err := scan(t, c.data, c.part)
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), "refused") {
				t.Errorf("got %v, want a refusal with %q", err, c.why)
			}
		})
	}
	all := int64(maxEntries+2) * 512
	if err := scanFile(t.Context(), manyFiles{}, all, Expect{Part: partUnified}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "entries") {
		t.Errorf("too many entries: %v", err)
	}
	if err := scanFile(t.Context(), bytes.NewReader(nil), maxImageSize+1, Expect{Part: partUnified}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a file of more than 8 GiB: %v", err)
	}
}

// The metadata of an untrusted image is parsed within bounds: nested brackets,
// which take other parsers quadratic time and memory, cost nothing.
func TestHostileMetadataIsCheap(t *testing.T) {
	for _, unit := range []string{"[", "{", "- ", "? ", "[{", "a: "} {
		start := time.Now()
		err := scan(t, pack(t, meta(strings.Repeat(unit, 64<<10/len(unit)))), partUnified)
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: got %v", unit, err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%q: the refusal took %v", unit, took)
		}
	}
}

// manyFiles is an endless tar of empty files with different names. It is
// generated while it is read, from a header in which only digits change.
type manyFiles struct{}

func (manyFiles) ReadAt(p []byte, at int64) (int, error) {
	base := make([]byte, 512)
	copy(base, "rootfs/00000000")
	copy(base[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00        0")
	copy(base[257:], "ustar\x0000")
	baseSum := 0
	for _, b := range base {
		baseSum += int(b)
	}
	head := make([]byte, 512)
	for done := 0; done < len(p); {
		n, skip := (at+int64(done))/512, (at+int64(done))%512
		copy(head, base)
		sum := baseSum
		for i := 14; n > 0; i, n = i-1, n/10 {
			head[i] += byte(n % 10)
			sum += int(n % 10)
		}
		for i := 153; i >= 148; i, sum = i-1, sum/8 {
			head[i] = '0' + byte(sum%8)
		}
		head[154], head[155] = 0, ' '
		done += copy(p[done:], head[skip:])
	}
	return len(p), nil
}

// retype changes the type of an entry in a finished archive.
func retype(t *testing.T, data []byte, name string, kind byte) []byte {
	t.Helper()
	for at := 0; at+512 <= len(data); at += 512 {
		head := data[at : at+512]
		if string(bytes.TrimRight(head[:100], "\x00")) != name {
			continue
		}
		head[156] = kind
		if kind == tar.TypeGNUSparse {
			copy(head[257:], "ustar  \x00")
		}
		copy(head[148:156], "        ")
		sum := 0
		for _, b := range head {
			sum += int(b)
		}
		copy(head[148:156], fmt.Sprintf("%06o\x00 ", sum))
		return data
	}
	t.Fatalf("no entry %s", name)
	return nil
}

// setWindow changes the dictionary size that an xz file's first block claims.
func setWindow(t *testing.T, data []byte, code byte) {
	t.Helper()
	head := data[12 : 12+(int(data[12])+1)*4]
	i := bytes.Index(head, []byte{0x21, 0x01})
	if i < 0 {
		t.Fatal("no LZMA2 filter in the block's header")
	}
	head[i+2] = code
	binary.LittleEndian.PutUint32(head[len(head)-4:], crc(head[:len(head)-4]))
}

func FuzzScan(f *testing.F) {
	for _, part := range []byte{0, 1} {
		f.Add(pack(f, good()), part)
		f.Add(gz(f, pack(f, good())), part)
		f.Add(zst(f, pack(f, good())), part)
		f.Add(xzip(f, pack(f, good()), xz.WriterConfig{}), part)
	}
	f.Add(squash{}.bytes(goodRoot()), byte(2))
	f.Add(qcow2(nil), byte(3))
	parts := []Part{partUnified, partMetadata, partRootfs, partDisk}
	f.Fuzz(func(t *testing.T, data []byte, part byte) {
		// Every input ends the scan, and each refusal has the right kind.
		if err := scan(t, data, parts[int(part)%len(parts)]); err != nil && !fault.Is(err, fault.Invalid) {
			t.Fatalf("not a refusal: %v", err)
		}
	})
}
