//go:build integration

package lxd_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"hostler/containerbroker"
	"hostler/containerbroker/lxd"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/fault"
)

// rare makes files that a careless copy changes. $1 is the first id of the guest.
const rare = `
mkdir d acl; echo one >d/a; ln d/a d/b; ln d/a d/c; chown $(($1 + 1000)):$(($1 + 1000)) d/a
setfattr -n user.x -v y d/a; setfattr -n trusted.t -v z d
cp /bin/true cap; setcap cap_net_raw+ep cap; cp /bin/true suid; chmod 6755 suid
truncate -s 64M sparse; mkfifo fifo; mknod null c 1 3; touch -d @1.5 old; echo high >high; chown $(($1 + 65536)) high
ln -s ../../../etc/passwd link; : >"$(printf 'not\377text')"; : >"$(printf 'two\nlines')"; ! command -v setfacl || setfacl -m u:1:r acl
`

const nested = `btrfs subvolume create nested; mkdir nested/d; echo deep >nested/d/file; btrfs subvolume snapshot -r nested frozen`

// An instance of LXD becomes an equal instance of Incus, whatever the pools.
func TestTransfer(t *testing.T) {
	for _, pools := range [][2]string{{"btrfs", "btrfs"}, {"btrfs", "dir"}, {"dir", "btrfs"}} {
		t.Run(pools[0]+" to "+pools[1], func(t *testing.T) {
			from := lxdtest.StartWith(t, lxdtest.Options{Daemon: lxdtest.LXD, Driver: pools[0]})
			to := lxdtest.StartWith(t, lxdtest.Options{Daemon: lxdtest.Incus, Driver: pools[1]})
			source := lxd.New(lxd.Options{Dialect: lxd.LXD, Socket: from.Socket, Namespace: "hostler"})
			target := lxd.New(lxd.Options{Dialect: lxd.Incus, Socket: to.Socket, Namespace: "hostler"})
			m := machine("mover", from.TinyFingerprint, "token")
			must(t, source.Create(t.Context(), m, nil))
			must(t, source.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
			if err := source.Export(t.Context(), m.Name, m.Stamp, io.Discard); !fault.Is(err, fault.NotReady) {
				t.Errorf("a running instance: %v", err)
			}
			must(t, source.SetPower(t.Context(), m.Name, containerbroker.PowerStop, 0))
			root := filepath.Join(from.Dir, "storage-pools", from.Pool, "containers", m.Name, "rootfs")
			info, err := os.Stat(root)
			must(t, err)
			script := rare
			if pools[0] == "btrfs" {
				script += nested
			}
			cmd := exec.Command("sh", "-ec", script, "sh", fmt.Sprint(info.Sys().(*syscall.Stat_t).Uid))
			cmd.Dir = root
			if b, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, b)
			}

			other := m.Stamp
			other.Token = "other"
			if err := source.Export(t.Context(), m.Name, other, io.Discard); !fault.Is(err, fault.Conflict) {
				t.Errorf("another stamp: %v", err)
			}
			path := filepath.Join(t.TempDir(), "backup.tar")
			before := contentsOf(t, source, m, path)
			for _, name := range []string{"rootfs/d/c", "rootfs/cap", "rootfs/sparse", "rootfs/null", "rootfs/nested/d/file", "rootfs/frozen/d/file"} {
				if _, there := before[name]; !there && (pools[0] == "btrfs" || filepath.Dir(filepath.Dir(filepath.Dir(name))) == ".") {
					t.Errorf("the backup lacks %s", name)
				}
			}
			file, err := os.Open(path)
			must(t, err)
			defer file.Close()
			must(t, target.Import(t.Context(), m.Name, to.Pool, file))
			after := contentsOf(t, target, m, filepath.Join(t.TempDir(), "copy.tar"))
			if example, n := before.Difference(after); n != 0 {
				t.Errorf("%d files differ, e.g. %q", n, example)
			}
			must(t, target.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
			must(t, from.API(http.MethodPost, "/1.0/instances/"+m.Name+"/snapshots", map[string]any{"name": "one"}, nil))
			if err := source.Export(t.Context(), m.Name, m.Stamp, io.Discard); !fault.Is(err, fault.NeedsOperator) {
				t.Errorf("an instance with snapshots: %v", err)
			}
			must(t, target.Delete(t.Context(), m.Name, m.Stamp))
			must(t, source.Delete(t.Context(), m.Name, m.Stamp))
		})
	}
}

// contentsOf exports an instance to a file and reads the contents from it.
func contentsOf(t *testing.T, d *lxd.Driver, m containerbroker.Machine, path string) lxd.Contents {
	t.Helper()
	file, err := os.Create(path)
	must(t, err)
	defer file.Close()
	must(t, d.Export(t.Context(), m.Name, m.Stamp, file))
	_, err = file.Seek(0, io.SeekStart)
	must(t, err)
	contents, err := lxd.ReadContents(file)
	must(t, err)
	return contents
}
