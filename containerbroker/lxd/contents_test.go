package lxd

import (
	"archive/tar"
	"bytes"
	"testing"
	"time"
)

// backup returns a backup with the files.
func backup(t *testing.T, files ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range files {
		data := []byte(h.Uname) // carries the file's data
		h.Uname = ""
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
			h.Size = int64(len(data))
		}
		h.Name = backupRoot + h.Name
		if h.Typeflag == tar.TypeLink {
			h.Linkname = backupRoot + h.Linkname
		}
		h.ModTime = time.Unix(1, 0)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// Each property of a file counts. The order of a file's names and the daemon's
// own record do not.
func TestContents(t *testing.T) {
	xattr := map[string]string{"SCHILY.xattr.security.capability": "\x01\x00"}
	base := []tar.Header{{Name: "rootfs/a", Uname: "data", Mode: 0o644}, {Name: "rootfs/b", Typeflag: tar.TypeLink, Linkname: "rootfs/a"}, {Name: "backup.yaml", Uname: "one"}}
	want, err := ReadContents(backup(t, base...))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files []tar.Header
		count int
	}{
		"same":        {base, 0},
		"other order": {[]tar.Header{{Name: "rootfs/b", Uname: "data", Mode: 0o644}, {Name: "rootfs/a", Typeflag: tar.TypeLink, Linkname: "rootfs/b"}}, 0},
		"two files":   {[]tar.Header{{Name: "rootfs/a", Uname: "data", Mode: 0o644}, {Name: "rootfs/b", Uname: "data", Mode: 0o644}}, 2},
		"data":        {[]tar.Header{{Name: "rootfs/a", Uname: "Data", Mode: 0o644}, base[1]}, 2},
		"mode":        {[]tar.Header{{Name: "rootfs/a", Uname: "data", Mode: 0o640}, base[1]}, 2},
		"owner":       {[]tar.Header{{Name: "rootfs/a", Uname: "data", Mode: 0o644, Uid: 1}, base[1]}, 2},
		"capability":  {[]tar.Header{{Name: "rootfs/a", Uname: "data", Mode: 0o644, PAXRecords: xattr}, base[1]}, 2},
		"missing":     {base[:1], 2},
		"more":        {append(base[:2:2], tar.Header{Name: "rootfs/c"}), 1},
	} {
		got, err := ReadContents(backup(t, c.files...))
		if err != nil {
			t.Fatal(err)
		}
		if example, count := want.Difference(got); count != c.count || (example == "") != (count == 0) {
			t.Errorf("%s: %d differences, e.g. %q, want %d", name, count, example, c.count)
		}
	}
	whole := backup(t, base...).Bytes()
	for _, short := range []int{0, 700, 1024, 1100, len(whole) - 512} {
		if _, err := ReadContents(bytes.NewReader(whole[:short])); err == nil {
			t.Errorf("%d bytes of a backup count as whole", short)
		}
	}
}
