//go:build integration

package crash_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
)

// often is how many times a random fault is tried: HOSTLER_CRASH_CYCLES, or
// what the sample or the campaign has.
func often(sample, campaign int) int {
	if n, err := strconv.Atoi(os.Getenv("HOSTLER_CRASH_CYCLES")); err == nil && n > 0 {
		return n
	}
	if long {
		return campaign
	}
	return sample
}

// seeded returns a source of faults and prints how to have the same again.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("HOSTLER_CRASH_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("HOSTLER_CRASH_SEED=%d gives the same moments again", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// moment waits for a random time: what is under way then is what the fault
// hits.
func moment(r *rand.Rand, most time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(most)))) }

// F3: the daemon killed in the middle of making and of deleting machines.
func daemonKilled(t *testing.T, lxd *lxdtest.Server) {
	w := newWorld(t, lxd, "daemonkilled")
	r := seeded(t)
	keep := w.declare("keep", map[string]int{"keep": 32})
	w.start()
	w.hostler("apply", "--allow", "destroy", "-f", keep.path)
	before := w.converge(nil, keep)
	for range often(1, 100) {
		two := w.declare("two", map[string]int{"a": 32, "b": 32})
		w.hostler("apply", "--allow", "destroy", "-f", two.path)
		w.killDaemon(r, 1500*time.Millisecond)
		running := w.converge(before, keep, two)
		none := w.declare("two", nil)
		w.hostler("apply", "--allow", "destroy", "-f", none.path)
		w.killDaemon(r, 700*time.Millisecond)
		w.converge(running, keep)
		w.volumes()
	}
	t.Logf("the slowest recovery took %v", w.slowest.Round(time.Millisecond))
}

func (w *world) killDaemon(r *rand.Rand, most time.Duration) {
	w.Helper()
	moment(r, most)
	w.lxd.Kill()
	w.lxd.Run()
	w.revived = time.Now()
}

// F1: the agent killed repeatedly while machines come, change and go.
func agentKilled(t *testing.T, lxd *lxdtest.Server) {
	w := newWorld(t, lxd, "agentkilled")
	r := seeded(t)
	keep := w.declare("keep", map[string]int{"keep": 32})
	w.start()
	w.hostler("apply", "--allow", "destroy", "-f", keep.path)
	running := w.converge(nil, keep)
	cycles := often(5, 200)
	for cycle := range cycles {
		wanted := map[string]int{}
		for _, name := range []string{"a", "b", "c"} {
			if r.IntN(2) == 0 {
				wanted[name] = 32 + 16*r.IntN(2)
			}
		}
		churn := w.declare("churn", wanted)
		// Acknowledged or not at all: what was not is asked for again below.
		_, refused := w.try("apply", "--allow", "destroy", "-f", churn.path)
		if refused != nil {
			t.Fatalf("cycle %d: %v", cycle, refused)
		}
		moment(r, 1200*time.Millisecond)
		w.kill()
		w.deaths = 0
		w.revive()
		running = w.converge(running, keep, churn)
		for name, g := range running {
			if want, of := wanted[name]; of && g.Memory != fmt.Sprint(want<<20) {
				t.Errorf("cycle %d: the memory of %s is %s, not %d MiB", cycle, name, g.Memory, want)
			}
		}
		if w.volumes(); t.Failed() {
			t.Fatalf("cycle %d failed", cycle)
		}
	}
	t.Logf("%d cycles, the slowest recovery took %v", cycles, w.slowest.Round(time.Millisecond))
}

// F1: the agent is killed while it takes a declaration. Acknowledged declarations
// are there afterwards; another is there whole or not at all.
func killedWhileAsked(t *testing.T, lxd *lxdtest.Server) {
	w := newWorld(t, lxd, "asked")
	r := seeded(t)
	w.start()
	acknowledged := 0
	for cycle := range often(10, 200) {
		both := w.declare("both", map[string]int{"x": 32 + cycle%2, "y": 32 + cycle%2})
		done := make(chan error, 1)
		go func() {
			_, err := w.try("apply", "--allow", "destroy", "-f", both.path)
			done <- err
		}()
		moment(r, 30*time.Millisecond)
		w.kill()
		err := <-done
		w.start()
		known, lookErr := w.machines()
		if lookErr != nil {
			t.Fatal(lookErr)
		}
		if n := len(known); n != 0 && n != 2 || n == 0 && err == nil {
			t.Fatalf("cycle %d: the answer was %v, and the machines are %v", cycle, err, known)
		}
		if err == nil {
			acknowledged++
		}
		w.hostler("apply", "--allow", "destroy", "-f", w.declare("both", nil).path)
		w.converge(nil)
	}
	t.Logf("%d were acknowledged", acknowledged)
}

// F2: an agent that was stopped for 5 s during its work continues.
func agentFrozen(t *testing.T, lxd *lxdtest.Server) {
	w := newWorld(t, lxd, "frozen")
	r := seeded(t)
	keep := w.declare("keep", map[string]int{"keep": 32})
	w.start()
	w.hostler("apply", "--allow", "destroy", "-f", keep.path)
	before := w.converge(nil, keep)
	for range often(1, 10) {
		two := w.declare("two", map[string]int{"a": 32, "b": 32})
		w.hostler("apply", "--allow", "destroy", "-f", two.path)
		moment(r, time.Second)
		_ = w.agent.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(5 * time.Second)
		_ = w.agent.cmd.Process.Signal(syscall.SIGCONT)
		running := w.converge(before, keep, two)
		w.hostler("apply", "--allow", "destroy", "-f", w.declare("two", nil).path)
		w.converge(running, keep)
	}
	if w.agent.dead() {
		t.Error("the agent died")
	}
}
