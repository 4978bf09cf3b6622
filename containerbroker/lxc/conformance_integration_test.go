//go:build integration

package lxc_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
)

func TestConformance(t *testing.T) {
	for _, btrfs := range []bool{true, false} {
		t.Run(map[bool]string{true: "btrfs", false: "folders"}[btrfs], func(t *testing.T) {
			r := newRig(t, btrfs)
			broker := r.broker("hostler")
			h := r.harness(broker, r.broker("other"), btrfs)
			h.BreakList = func(*testing.T) { broker.BreakNextList() }
			h.LoseCreate = func(*testing.T) { broker.LoseNextCreate() }
			brokertest.Run(t, h)
			if left := r.left(); len(left) > 0 {
				t.Errorf("the suite left:\n%s", strings.Join(left, "\n"))
			}
		})
	}
}

// harness returns what every driver in a rig has in common.
func (r *rig) harness(broker, other containerbroker.Broker, btrfs bool) brokertest.Harness {
	return brokertest.Harness{
		Broker: broker, Other: other,
		Namespace: "hostler", OtherNamespace: "other",
		Image: image, Address: true,
		Bridge: brokertest.Bridge(r.t), Folder: folder, Device: brokertest.Device,
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
	}
}
