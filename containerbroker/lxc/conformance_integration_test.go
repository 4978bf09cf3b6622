//go:build integration

package lxc_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"hostler/containerbroker/brokertest"
)

func TestConformance(t *testing.T) {
	for _, btrfs := range []bool{true, false} {
		t.Run(map[bool]string{true: "btrfs", false: "folders"}[btrfs], func(t *testing.T) {
			r := newRig(t, btrfs)
			broker := r.broker("hostler")
			brokertest.Run(t, brokertest.Harness{
				Broker: broker, Other: r.broker("other"),
				Namespace: "hostler", OtherNamespace: "other",
				Image: image, Address: true,
				Bridge: brokertest.Bridge(t), Folder: folder, Device: brokertest.Device,
				AddForeign: r.addForeign,
				Detach: func(t *testing.T, name, _ string) {
					pid := find(t, broker, name).PID
					host(t, "nsenter", "-t", strconv.FormatInt(pid, 10), "-m", "/bin/umount", "/dev/hostler-data")
				},
				Die: func(t *testing.T, name string) {
					must(t, syscall.Kill(int(find(t, broker, name).PID), syscall.SIGKILL))
				},
				Halve: func(t *testing.T, name string) {
					root := filepath.Join(r.path, ".hostler/pool/guests", "token-"+name)
					if btrfs {
						host(t, "btrfs", "subvolume", "delete", root)
					} else {
						host(t, "rm", "-r", root)
					}
				},
				BreakList:  func(*testing.T) { broker.BreakNextList() },
				LoseCreate: func(*testing.T) { broker.LoseNextCreate() },
			})
			if left := r.left(); len(left) > 0 {
				t.Errorf("the suite left:\n%s", strings.Join(left, "\n"))
			}
		})
	}
}
