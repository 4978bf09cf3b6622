//go:build integration && failpoint

package lxc_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/lxc"
	"hostler/internal/run"
)

// stepEnv makes this test's program that of a step: serve, or lose.
const stepEnv = "HOSTLER_TEST_LXC_STEP"

// steps runs each step as a process of its own.
type steps struct{ lose atomic.Bool }

func (s *steps) Run(ctx context.Context, c run.Command) (run.Result, error) {
	how := "serve"
	if s.lose.Swap(false) {
		how = "lose"
	}
	c.Env = append(c.Env, stepEnv+"="+how)
	return run.Host{}.Run(ctx, c)
}

// A driver whose steps are other processes behaves as one that takes them
// itself.
func TestConformanceByHandedOutSteps(t *testing.T) {
	r := newRig(t, true)
	confined := func(namespace string) (*lxc.Confined, *steps) {
		s := &steps{}
		return lxc.NewConfined(
			lxc.Options{Path: r.path, Namespace: namespace, IDs: r.ids, Bridge: r.bridge, Images: r.cache}, s, run.Command{Path: "/proc/self/exe"}), s
	}
	broker, handed := confined("hostler")
	other, _ := confined("other")
	h := r.harness(broker, other, true)
	h.BreakList = func(*testing.T) { broker.BreakNextList() }
	h.Detach = nil // such a driver asks for the mounts of a guest only once
	h.LoseCreate = func(*testing.T) { handed.lose.Store(true) }
	brokertest.Run(t, h)
	if left := r.left(); len(left) > 0 {
		t.Errorf("the suite left:\n%s", strings.Join(left, "\n"))
	}
}

// Half-made instances are recognised with uid 0 alone.
func TestListNeedsNoCapability(t *testing.T) {
	r := newRig(t, true)
	d := r.broker("hostler")
	if _, err := d.EnsureImage(t.Context(), image, nil); err != nil {
		t.Fatal(err)
	}
	guests := r.path + "/.hostler/pool/guests"
	stat := func(user string) error {
		return exec.Command("/usr/bin/setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--bounding-set", "-all", "--inh-caps", "-all", //nolint:gosec // the test's own path
			"/usr/bin/stat", guests+"/absent").Run()
	}
	out, err := exec.Command("/usr/bin/setpriv", "--groups", "0", "--bounding-set", "-all", "--inh-caps", "-all",
		"/usr/bin/stat", guests+"/absent").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "No such file") {
		t.Errorf("root without capabilities: %v, %s", err, out)
	}
	if stat("65534") == nil {
		t.Error("a user of the host enters the folder of guests")
	}
	info, err := os.Stat(guests)
	must(t, err)
	if own := info.Sys().(*syscall.Stat_t); own.Uid != r.ids.FirstUser || own.Gid != 0 || info.Mode().Perm() != 0o710 {
		t.Errorf("it is %s:%d %o", strconv.Itoa(int(own.Uid)), own.Gid, info.Mode().Perm())
	}
}
