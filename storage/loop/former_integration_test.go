//go:build integration

package loop_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/storage/storagetest"
)

// On every filesystem of a host, a volume whose file was replaced shows that its
// device still has the former file, and has the present one once it is attached
// again.
func TestReplacedFile(t *testing.T) {
	for _, kind := range storagetest.Hosts {
		t.Run(kind, func(t *testing.T) {
			dir := storagetest.Host(t, kind, 64*mib)
			s, r := source(dir, "one"), ref("data")
			volume(t, s, r, mib, false)
			a, err := attach(s, r)
			must(t, err)
			if a.Former {
				t.Errorf("it is attached as %+v", a)
			}
			file := filepath.Join(dir, "data.img")
			must(t, os.WriteFile(file+".restored", append([]byte("restored"), make([]byte, mib-8)...), 0o600))
			must(t, os.Rename(file+".restored", file))
			a.Former = true
			if v := describe(t, s, r); v.Problem != "" || len(v.Attachments) != 1 || v.Attachments[0] != a {
				t.Errorf("after its replacement it is %+v", v)
			}
			must(t, detach(s, r))
			a, err = attach(s, r)
			must(t, err)
			head := make([]byte, 8)
			f, err := os.Open(a.Device)
			must(t, err)
			defer f.Close()
			if _, err := f.ReadAt(head, 0); err != nil || string(head) != "restored" || a.Former {
				t.Errorf("attached again as %+v it reads %q, %v", a, head, err)
			}
			must(t, f.Close())
			must(t, os.Remove(file))
			if v := describe(t, s, r); !strings.Contains(v.Problem, "removed outside hostler") || v.Attachments[0] != a {
				t.Errorf("without its file it is %+v", v)
			}
			must(t, os.WriteFile(file, []byte("the begin of a copy"), 0o600))
			if v := describe(t, s, r); !v.Unlinked || !strings.Contains(v.Problem, "cp --sparse=always "+a.Device) {
				t.Errorf("while a copy of its data is made it is %+v", v)
			}
		})
	}
}
