//go:build failpoint

package persist

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hostler/internal/failpoint"
	"hostler/internal/run"
)

// A process dies after each file. A boot in between puts the NIC under no
// bridge that it cannot create, and the next process completes or removes the
// files.
func TestKilledAfterEachFile(t *testing.T) {
	if root := os.Getenv("PERSIST_CHILD"); root != "" {
		_, _, _ = writeBridge(root, bridge())
		return
	}
	for name, c := range hosts {
		root := host(t, c.files)
		before := tree(t, root)
		if _, _, err := writeBridge(root, bridge()); err != nil {
			t.Fatal(err)
		}
		whole := tree(t, root)
		for nth := 1; nth <= len(whole)-len(before); nth++ {
			t.Run(fmt.Sprint(name, " ", nth), func(t *testing.T) {
				root := host(t, c.files)
				die(t, root, nth)
				part := tree(t, root)
				if got := len(part) - len(before); got != nth {
					t.Errorf("there are %d files", got)
				}
				nic := part["etc/systemd/network/05-hostler-eth0.network"] + part["etc/NetworkManager/system-connections/05-hostler-eth0.nmconnection"]
				if nic != "" && len(part) != len(whole) {
					t.Error("the NIC is given to a bridge that is not whole")
				}
				for path, content := range part {
					if whole[path] != content {
						t.Errorf("half of %s:\n%s", path, content)
					}
				}
				if _, changed, err := writeBridge(root, bridge()); err != nil || changed != (len(part) < len(whole)) {
					t.Errorf("the next Write: %v, %v", changed, err)
				}
				if d := cmp.Diff(whole, tree(t, root)); d != "" {
					t.Error(d)
				}
				if _, err := removeBridge(root, "hostler", "br-lan"); err != nil {
					t.Error(err)
				}
				if d := cmp.Diff(before, tree(t, root)); d != "" {
					t.Errorf("left: %s", d)
				}
			})
		}
	}
}

// die writes the files in a process that is killed after nth of them.
func die(t *testing.T, root string, nth int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "hits")
	_, err = run.Host{}.Run(t.Context(), run.Command{
		Path: self, Args: []string{"-test.run=^TestKilledAfterEachFile$"},
		Env: []string{
			"PERSIST_CHILD=" + root, fmt.Sprintf("%s=%s=kill#%d", failpoint.PlanEnv, failpoint.NetLastingWritten, nth), failpoint.LogEnv + "=" + log,
		},
	})
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the process ended with %v", err)
	}
	if hits, _ := os.ReadFile(log); strings.Count(string(hits), string(failpoint.NetLastingWritten)) != nth {
		t.Errorf("hits: %s", hits)
	}
}
