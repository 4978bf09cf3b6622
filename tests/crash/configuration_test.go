//go:build integration

package crash_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// A hostler.yaml that vanishes, before or during the agent's life, changes nothing
// that is in force, and the status says so. An empty file has the defaults.
func TestALostConfigurationIsKept(t *testing.T) {
	a := harness.NewAgent(t, t.TempDir())
	a.Configure("namespace: test\nharvest: none\n")
	a.Start()
	file := filepath.Join(a.Dir, "hostler.yaml")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	kept := func() {
		t.Helper()
		harness.Wait(t, "the notice", time.Minute, func() error {
			if out := a.Run("status"); !strings.Contains(out, file+" is missing: the last configuration is kept") {
				return errors.New(out)
			}
			return nil
		})
		if out := a.Run("harvest"); !strings.Contains(out, "none") {
			t.Errorf("the harvest mode is %s", out)
		}
	}
	kept()
	a.Stop()
	a.Start()
	kept()
	if err := os.WriteFile(file, []byte("namespace: test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Wait(t, "the defaults", time.Minute, func() error {
		if out := a.Run("harvest"); !strings.Contains(out, "destroyed") {
			return errors.New(out)
		}
		return nil
	})
}
