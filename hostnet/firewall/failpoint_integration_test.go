//go:build integration && failpoint

package firewall_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/hostnet/firewall"
	"hostler/hostnet/nettest"
	"hostler/internal/failpoint"
	"hostler/internal/run"
)

// A process dies after the transaction but before its result. The rules exist,
// and the next process writes nothing.
func TestKilledAfterTheTransaction(t *testing.T) {
	if os.Getenv("FIREWALL_CHILD") != "" {
		f, err := firewall.New("hostler", run.Host{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Apply(t.Context(), rules())
		return
	}
	n := nettest.New(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "hits")
	_, err = n.Runner().Run(t.Context(), run.Command{
		Path: self, Args: []string{"-test.run=^TestKilledAfterTheTransaction$"},
		Env: []string{"FIREWALL_CHILD=1", failpoint.PlanEnv + "=net-rules-loaded=kill", failpoint.LogEnv + "=" + log},
	})
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatal(err)
	}
	apply(t, newFirewall(t, n, "hostler"), rules(), false)
	if hits, err := os.ReadFile(log); err != nil || string(hits) != "net-rules-loaded\n" {
		t.Errorf("hits %q, %v", hits, err)
	}
}
