package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/internal/paths"
)

// The remedy for a stopped daemon names the unit of its installation.
func TestRemedyNamesTheUnitOfTheInstallation(t *testing.T) {
	for folder, unit := range map[string]string{paths.DebianLXDDir: "lxd", paths.SnapLXDDir: "snap.lxd.daemon.service"} {
		t.Setenv("LXD_DIR", "")
		p := paths.New(t.TempDir(), "", "", "")
		if err := os.MkdirAll(p.Host(folder), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mknod(filepath.Join(p.Host(folder), "unix.socket"), unix.S_IFSOCK|0o600, 0); err != nil {
			t.Fatal(err)
		}
		broker, err := drivers()["lxd"].remote(p, spec.Config{Namespace: "hostler"}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = broker.List(t.Context(), false); !strings.HasSuffix(containerbroker.Remedy(err), "systemctl start "+unit) {
			t.Errorf("%s: %v", folder, err)
		}
	}
}
