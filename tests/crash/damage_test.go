//go:build integration

package crash_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
)

// F12, I1, I16: whatever the damage of the store, instances run on and are
// recognised under their former identity, and the agent only reads from the daemon.
func damagedStore(t *testing.T, lxd *lxdtest.Server) {
	w := newWorld(t, lxd, "damaged")
	proxy := w.behindProxy()
	w.start()
	first := w.declare("first", map[string]int{"one": 32})
	w.hostler("apply", "--allow", "destroy", "-f", first.path)
	w.converge(nil, first)
	w.stop()
	old := w.readStore()
	w.start()
	second := w.declare("second", map[string]int{"two": 32, "three": 48})
	w.hostler("apply", "--allow", "destroy", "-f", second.path)
	before := w.converge(nil, first, second)
	w.stop()

	for _, damage := range []struct {
		name string
		do   func(*world)
	}{
		{"truncated", func(w *world) { w.damage("state.db", nil) }},
		{"garbage", func(w *world) {
			b := make([]byte, 64<<10)
			_, _ = rand.Read(b)
			w.damage("state.db", b)
		}},
		{"deleted", func(w *world) { w.removeStore("state.db", "state.db-wal", "state.db-shm") }},
		{"an older copy", func(w *world) {
			w.removeStore("state.db-wal", "state.db-shm")
			w.damage("state.db", old["state.db"])
		}},
		{"lost with its identity", (*world).loseStore},
		{"killed while it was rebuilt", func(w *world) {
			w.damage("state.db", nil)
			w.plan = "store-after-effect-before-result=kill#1"
			w.launch()
			<-w.agent.exited
		}},
	} {
		t.Run(damage.name, func(t *testing.T) {
			w.part(t, func(w *world) {
				_ = os.Remove(w.path("log"))
				damage.do(w)
				proxy.Forget()
				w.start()
				w.converge(before, first, second)
				for _, d := range []declaration{first, second} {
					w.hostler("apply", "--allow", "destroy", "-f", d.path)
				}
				w.converge(before, first, second)
				for request := range proxy.Counts() {
					// Readiness is asked for inside the guest.
					if !strings.HasPrefix(request, "GET ") && !strings.HasSuffix(request, "/exec") {
						t.Errorf("the daemon was asked for a change: %s", request)
					}
				}
				if !strings.Contains(tail(w.path("log"), 1000), "written again from stamps") {
					t.Error("the records were not lost at all")
				}
				w.stop()
			})
		})
	}
	t.Run("newer", func(t *testing.T) {
		w.part(t, func(w *world) { w.newerStore(proxy, func() { w.converge(before, first, second) }) })
	})
}

// newerStore: an agent that does not understand the store leaves it, and
// everything else, alone.
func (w *world) newerStore(proxy *lxdtest.Proxy, well func()) {
	const versionAt = 60 // of SQLite's header, big endian
	whole := w.readStore()
	newer := bytes.Clone(whole["state.db"])
	binary.BigEndian.PutUint32(newer[versionAt:], 99)
	w.damage("state.db", newer)
	proxy.Forget()
	w.launch()
	select {
	case <-w.agent.exited:
	case <-time.After(patience):
		w.Fatal("the agent runs on a store of a newer schema")
	}
	if said := tail(w.path("log"), 3); !strings.Contains(said, "newer") {
		w.Errorf("it said %q", said)
	}
	if n := proxy.Count("", "/"); n > 0 {
		w.Errorf("the daemon was asked %v", proxy.Counts())
	}
	for name, content := range w.readStore() {
		if want := whole[name]; name == "state.db" && !bytes.Equal(content, newer) || name != "state.db" && !bytes.Equal(content, want) {
			w.Errorf("%s was changed", name)
		}
	}
	w.damage("state.db", whole["state.db"])
	w.start()
	well()
	w.stop()
}

// readStore reads the files of the store; the lock, which holds a process id,
// is none of them.
func (w *world) readStore() map[string][]byte {
	w.Helper()
	files := map[string][]byte{}
	for _, pattern := range []string{"state.db*", "store-*"} {
		paths, _ := filepath.Glob(w.path("state/" + pattern))
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				w.Fatal(err)
			}
			files[filepath.Base(path)] = b
		}
	}
	return files
}

func (w *world) damage(name string, content []byte) {
	w.Helper()
	if err := os.WriteFile(w.path("state/"+name), content, 0o600); err != nil {
		w.Fatal(err)
	}
}
