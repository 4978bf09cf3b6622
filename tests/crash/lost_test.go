//go:build integration

package crash_test

import (
	"fmt"
	"os"
	"testing"

	"hostler/containerbroker/lxd/lxdtest"
)

// behindProxy puts a proxy between the agent and the daemon, from the next start on.
func (w *world) behindProxy() *lxdtest.Proxy {
	w.Helper()
	proxy := lxdtest.NewProxy(w.T, w.lxd.Socket)
	w.lxdDir = w.path("front")
	if err := os.Mkdir(w.lxdDir, 0o700); err != nil {
		w.Fatal(err)
	}
	if err := os.Symlink(proxy.Socket, w.path("front/unix.socket")); err != nil {
		w.Fatal(err)
	}
	return proxy
}

// F7, I3: the daemon carries out each call and its answer is lost: for the create, the
// start and the delete. Nothing is created twice.
func lostReplies(t *testing.T, lxd *lxdtest.Server) {
	w := newWorld(t, lxd, "lost")
	proxy := w.behindProxy()
	w.start()
	const atOnce = 5
	lost, rounds := 0, often(2, 40)
	for range rounds {
		want := map[string]int{}
		for i := range atOnce {
			want[fmt.Sprintf("m%d", i)] = 32
		}
		all := w.declare("all", want)
		proxy.Forget()
		proxy.Add(lxdtest.Rule{Method: "POST", Path: "/1.0/instances", Fault: lxdtest.LoseReply, Times: atOnce})
		proxy.Add(lxdtest.Rule{Method: "PUT", Path: "/state", Fault: lxdtest.LoseReply, Times: atOnce})
		w.hostler("apply", "--allow", "destroy", "-f", all.path)
		w.converge(nil, all)
		// The image has a POST of its own, to another path.
		if n := proxy.Counts()["POST /1.0/instances"]; n != atOnce {
			t.Errorf("%d creates were sent for %d machines", n, atOnce)
		}
		lost += 2*atOnce - proxy.Pending()
		proxy.Heal()
		proxy.Add(lxdtest.Rule{Method: "DELETE", Path: "/1.0/instances/", Fault: lxdtest.LoseReply, Times: atOnce})
		w.hostler("apply", "--allow", "destroy", "-f", w.declare("all", nil).path)
		w.converge(nil)
		lost += atOnce - proxy.Pending()
		proxy.Heal()
		w.volumes()
	}
	if t.Logf("%d machines, %d lost replies to creates, starts and deletes", rounds*atOnce, lost); lost != 3*atOnce*rounds {
		t.Errorf("%d replies were lost, not %d", lost, 3*atOnce*rounds)
	}
}
