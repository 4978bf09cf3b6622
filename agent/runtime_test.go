package agent

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"hostler/agent/api"
	"hostler/containerbroker/kvm"
	kvminit "hostler/initialisers/kvm"
	"hostler/internal/hosttest"
	"hostler/internal/paths"
)

// F35: files removed from the runtime directory are restored unchanged, and no
// guest is taken for another meanwhile.
func TestF35TheRuntimeDirectoryIsMadeAgain(t *testing.T) {
	var err error
	dir := hosttest.SocketDir(t)
	h := &host{paths: paths.New("", "", t.TempDir(), filepath.Join(dir, "hostler")), drivers: drivers(), logger: slog.New(slog.DiscardHandler)}
	if h.listener, err = api.ListenRenewable(h.logger, h.paths.Socket(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	defer h.listener.Close()
	guests := accelerator(h.paths)
	if how := guests(); how != kvm.AcceleratorTCG {
		t.Errorf("before it is known guests run by %q", how)
	}
	proven := kvminit.Outcome{Accelerator: kvm.AcceleratorKVM, Asked: kvminit.AcceleratorAuto}
	if err := proven.Write(h.paths); err != nil {
		t.Fatal(err)
	}
	if how := guests(); how != kvm.AcceleratorKVM {
		t.Errorf("guests run by %q", how)
	}
	renewers := h.renewers()
	h.renewRuntime(renewers)
	for range 2 {
		if err := os.RemoveAll(h.paths.RunDir); err != nil {
			t.Fatal(err)
		}
		if how := guests(); how != kvm.AcceleratorKVM {
			t.Errorf("meanwhile guests run by %q", how)
		}
		h.renewRuntime(renewers)
		if c, err := net.Dial("unix", h.paths.Socket()); err != nil {
			t.Error(err)
		} else {
			_ = c.Close()
		}
		if again, err := kvminit.ReadOutcome(h.paths); err != nil || again != proven {
			t.Errorf("how guests run here: %+v, %v", again, err)
		}
	}
}
