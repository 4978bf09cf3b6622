//go:build integration

package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// An agent with another folder of LXC, e.g. because its hostler.yaml was lost, makes
// no machine a second time there: it says where the instances are. Back in their
// folder, it goes on with them.
func TestClassicMachinesStayInTheirFolder(t *testing.T) {
	c := newClassic(t)
	config, err := os.ReadFile(c.path("etc/hostler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	other := c.path("other")
	c.write("etc/hostler.yaml", strings.Replace(string(config), c.path("lxc"), other, 1))
	c.start()
	harness.Wait(c, "the agent's word on the folders", patience, func() error {
		if there, _ := filepath.Glob(filepath.Join(other, "*")); len(there) > 0 {
			t.Fatalf("made again: %v", there)
		}
		known, err := c.machines()
		if err != nil {
			return err
		}
		for _, part := range []string{c.path("lxc"), other, "`types: {lxc: {path: " + c.path("lxc") + "}}`"} {
			if m := known["keep"]; !strings.Contains(m.Message, part) {
				return fmt.Errorf("%+v, without %s", m, part)
			}
		}
		return nil
	})
	if now := c.host.Process("keep"); now != c.keep {
		t.Errorf("the guest was process %d and is %d", c.keep, now)
	}
	c.stop()
	if _, err := os.Lstat(filepath.Join(other, ".crashlxc")); err == nil {
		t.Errorf("a second pool was made")
	}
	c.write("etc/hostler.yaml", string(config))
	c.start()
	c.hostler("retry", "type/lxc")
	c.settled("")
}
