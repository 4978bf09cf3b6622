//go:build integration

package vm_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mayTake is about how long an apply of two machines takes until all is done,
// and mayAsk until it is acknowledged. The power goes at a random moment: one
// time in three of the latter.
const (
	mayTake = 20 * time.Second
	mayAsk  = 3 * time.Second
)

const churn = "/root/churn.yaml"

// powerCuts takes the power away so often, at random moments while machines
// come, change and go beside the running ones of the declaration site. Every
// declaration that was acknowledged is there afterwards; one that was under
// way is there whole or not at all. Each machine is one instance, and those
// that were left alone are the same as before.
func (m *machine) powerCuts(running map[string]instance, cuts int) {
	m.Helper()
	m.sh("hostler exec web -- sh -c 'echo kept >/srv/note; sync' && sync")
	seed, err := strconv.ParseUint(os.Getenv("HOSTLER_CRASH_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	m.Logf("HOSTLER_CRASH_SEED=%d gives the same moments again", seed)
	r := rand.New(rand.NewPCG(seed, 0))

	var before map[string]int
	asked := map[string]int{}
	acknowledgements, slowest := 0, time.Duration(0)
	m.write(churn, m.declare(asked))
	m.sh("hostler apply --allow destroy -f " + churn)
	for cut := range cuts {
		before, asked = asked, other(r, asked)
		acknowledged := m.cutDuring(r, asked)
		start := time.Now()
		m.boot()
		known := m.declared()
		switch {
		case acknowledged && !maps.Equal(known, asked):
			m.Fatalf("cut %d: %v was acknowledged, the agent has %v", cut, asked, known)
		case !maps.Equal(known, asked) && !maps.Equal(known, before):
			m.Fatalf("cut %d: asked for %v after %v, the agent has %v", cut, asked, before, known)
		}
		if acknowledged {
			acknowledgements++
		}
		asked = known
		m.write(churn, m.declare(asked))
		now := m.settled([]string{site, churn}, append(slices.Collect(maps.Keys(asked)), "web")...)
		slowest = max(slowest, time.Since(start))
		for name, memory := range asked {
			if want := fmt.Sprint(memory << 20); now[name].Memory != want {
				m.Errorf("cut %d: the memory of %s is %s, not %s", cut, name, now[name].Memory, want)
			}
		}
		m.survived(running, now)
		m.marked(now)
		m.onlyFilesOf(now)
		if audit := m.sh("dpkg --audit"); audit != "" {
			m.Errorf("cut %d: %s", cut, audit)
		}
		if running = now; m.Failed() {
			m.FailNow()
		}
		m.Logf("cut %d: acknowledged %v, %v there after %.1f s (%.1f s of CPU)", cut, acknowledged, asked, time.Since(start).Seconds(), m.spent().Seconds())
	}
	m.inPlace()
	aside := len(strings.Fields(m.sh("ls " + m.base.daemon.aside() + " 2>/dev/null; true")))
	m.outcome("%d power cuts, %d of them after the acknowledgement: nothing acknowledged is lost, one instance per machine, all as declared at most %.0f s after the power came back; files of %d deleted containers came back and were set aside", cuts, acknowledgements, slowest.Seconds(), aside)
}

// marked fails the test if a machine has the mark of another, as one that was
// made over the files of a former one would, and marks it.
func (m *machine) marked(all map[string]instance) {
	m.Helper()
	for name, i := range all {
		if mark := strings.TrimSpace(m.sh("hostler exec " + name + " -- sh -c 'cat /mark 2>/dev/null; echo " + i.UID + " >/mark; sync'")); mark != "" && mark != i.UID {
			m.Errorf("%s is %s and has the files of %s", name, i.UID, mark)
		}
	}
}

// cutDuring asks for machines and takes the power away at a random moment; it
// tells whether the agent had acknowledged by then.
func (m *machine) cutDuring(r *rand.Rand, machines map[string]int) (acknowledged bool) {
	m.Helper()
	m.write(churn, m.declare(machines))
	answer, guest := make(chan error, 1), m.guest
	go func() {
		_, err := guest.run("hostler apply --allow destroy -f "+churn, commandLimit)
		answer <- err
	}()
	most := mayTake
	if r.IntN(3) == 0 {
		most = mayAsk
	}
	select {
	case <-time.After(time.Duration(r.Int64N(int64(most)))):
	case <-m.exited:
		m.Fatal("the machine is off")
	}
	// What is in the channel was told to the one who asked.
	select {
	case err := <-answer:
		if err != nil {
			m.Fatal(err)
		}
		acknowledged = true
	default:
	}
	m.cut()
	return acknowledged
}

// declared reads the machines of churn, with their memory in MiB, from the
// agent's record, as soon as it answers.
func (m *machine) declared() map[string]int {
	m.Helper()
	out := m.sh("for i in $(seq 120); do hostler status >/dev/null 2>&1 && break; sleep 1; done; hostler show declaration/churn -o json")
	var object struct {
		Spec struct {
			Document struct {
				Machines map[string]struct{ Memory string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &object); err != nil {
		m.Fatalf("%v in %q", err, out)
	}
	machines := map[string]int{}
	for name, machine := range object.Spec.Document.Machines {
		size, err := strconv.Atoi(strings.TrimSuffix(machine.Memory, "MiB"))
		if err != nil {
			m.Fatalf("%v in %q", err, out)
		}
		machines[name] = size
	}
	return machines
}

// other is another set of machines a and b, with their memory in MiB.
func other(r *rand.Rand, than map[string]int) map[string]int {
	for {
		machines := map[string]int{}
		for _, name := range []string{"a", "b"} {
			if r.IntN(2) == 0 {
				machines[name] = 32 + 16*r.IntN(2)
			}
		}
		if !maps.Equal(machines, than) {
			return machines
		}
	}
}

func (m *machine) declare(machines map[string]int) string {
	if len(machines) == 0 {
		return "version: 1\nmachines: {}\n"
	}
	var text strings.Builder
	text.WriteString("version: 1\nmachines:\n")
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		fmt.Fprintf(&text, "  %s: {type: %s, image: busybox/1, memory: %dMiB}\n", name, m.base.daemon.kind, machines[name])
	}
	return text.String()
}
