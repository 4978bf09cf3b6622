//go:build integration

package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// rig is an agent on a private LXD.
type rig struct {
	b     testing.TB
	lxd   *lxdtest.Server
	agent *harness.Agent
	proxy *lxdtest.Proxy // nil: the agent speaks to LXD itself
}

func newRig(b testing.TB, proxied bool) *rig {
	b.Helper()
	harness.RaiseLimits(b)
	r := &rig{b: b, lxd: lxdtest.Start(b)}
	dir := r.lxd.Dir
	if proxied {
		r.proxy = lxdtest.NewProxy(b, r.lxd.Socket)
		dir = b.TempDir()
		if err := os.Symlink(r.proxy.Socket, dir+"/unix.socket"); err != nil {
			b.Fatal(err)
		}
	}
	// The first instance of an image has LXD unpack it.
	r.lxc("launch", r.lxd.TinyAlias, "first")
	r.lxc("delete", "-f", "first")
	r.agent = harness.NewAgent(b, dir)
	r.agent.Configure("namespace: bench\n")
	r.agent.Start()
	return r
}

func (r *rig) lxc(args ...string) { r.run("lxc", args...) }

func (r *rig) run(program string, args ...string) {
	r.b.Helper()
	if _, err := harness.Try([]string{"LXD_DIR=" + r.lxd.Dir}, program, args...); err != nil {
		r.b.Fatal(err)
	}
}

// apply declares n machines and waits until all are ready: running, with an
// init that stays.
func (r *rig) apply(n int) {
	r.b.Helper()
	r.agent.Apply("bench", declaration(n))
}

func (r *rig) delete() {
	r.b.Helper()
	r.agent.Run("delete", "declaration/bench", "--wait")
}

func declaration(n int) string {
	var text strings.Builder
	text.WriteString("version: 1\nmachines:\n")
	for _, name := range names("m", n) {
		fmt.Fprintf(&text, "  %s: {type: lxd, image: \"lxd:tiny\"}\n", name)
	}
	return text.String()
}

func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%03d", prefix, i+1)
	}
	return all
}

// took measures f.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}
