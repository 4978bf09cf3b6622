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

// rig is an agent on a private LXD or Incus.
type rig struct {
	b     testing.TB
	lxd   *lxdtest.Server
	agent *harness.Agent
	proxy *lxdtest.Proxy // nil: the agent speaks to the daemon itself
	dir   string         // where the agent and its peers find the daemon's socket
}

// newRig starts an agent with these lines in its configuration.
func newRig(b testing.TB, daemon lxdtest.Daemon, proxied bool, config ...string) *rig {
	b.Helper()
	harness.RaiseLimits(b)
	r := &rig{b: b, lxd: lxdtest.StartWith(b, lxdtest.Options{Daemon: daemon, Driver: "btrfs"})}
	r.dir = r.lxd.Dir
	if proxied {
		r.proxy = lxdtest.NewProxy(b, r.lxd.Socket)
		r.dir = b.TempDir()
		if err := os.Symlink(r.proxy.Socket, r.dir+"/unix.socket"); err != nil {
			b.Fatal(err)
		}
	}
	// The first instance of an image has the daemon unpack it.
	r.client("launch", r.lxd.TinyAlias, "first")
	r.client("delete", "-f", "first")
	r.agent = harness.NewAgent(b, b.TempDir())
	r.agent.Env = append(r.agent.Env, daemon.Variable+"="+r.dir)
	r.agent.Configure(strings.Join(append([]string{"namespace: bench"}, config...), "\n") + "\n")
	r.agent.Start()
	return r
}

// client runs the daemon's command line client.
func (r *rig) client(args ...string) { r.run(r.lxd.Daemon.Client, args...) }

func (r *rig) run(program string, args ...string) {
	r.b.Helper()
	if err := r.try(program, args...); err != nil {
		r.b.Fatal(err)
	}
}

func (r *rig) try(program string, args ...string) error {
	_, err := harness.Try(r.clientEnv(r.dir), program, args...)
	return err
}

// clientEnv is the environment of the daemon's programs, with the folder of the
// daemon's socket.
func (r *rig) clientEnv(dir string) []string {
	variable := r.lxd.Daemon.Variable
	return []string{variable + "=" + dir, strings.TrimSuffix(variable, "DIR") + "CONF=" + r.lxd.Dir}
}

// apply declares n machines and waits until all are ready: running, with an
// init that stays.
func (r *rig) apply(n int) {
	r.b.Helper()
	r.agent.Apply("bench", r.declaration(n))
}

func (r *rig) delete() {
	r.b.Helper()
	r.agent.Run("delete", "declaration/bench", "--wait")
}

func (r *rig) declaration(n int) string {
	var text strings.Builder
	text.WriteString("version: 1\nmachines:\n")
	for _, name := range names("m", n) {
		fmt.Fprintf(&text, "  %s: {type: %s, image: \"%[2]s:tiny\"}\n", name, r.lxd.Daemon.Name)
	}
	return text.String()
}

// names returns n names in their order, as the store lists them.
func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%0*d", prefix, max(3, len(fmt.Sprint(n))), i+1)
	}
	return all
}

// took measures f.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}
