//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Enabled reports whether crash points are compiled in.
const Enabled = true

// Environment variables that arm points and record hits.
const (
	// PlanEnv holds a plan; see parse().
	PlanEnv = "HOSTLER_FAILPOINTS"
	// LogEnv names a file to which every hit appends its point as a line.
	LogEnv = "HOSTLER_FAILPOINT_LOG"
)

var load = sync.OnceValues(func() (*plan, error) {
	p, err := parse(os.Getenv(PlanEnv))
	return newPlan(p, os.Getenv(LogEnv)), err
})

// Hit carries out the plan for the point, which is no effect, an error, a
// delay, a panic or a SIGKILL of this process. An unreadable plan ends the
// process with a message.
func Hit(p Point) error {
	plan, err := load()
	if err != nil {
		fmt.Fprintf(os.Stderr, "cannot read %s: %v\n", PlanEnv, err)
		os.Exit(2)
	}
	return plan.hit(p)
}

type plan struct {
	mu      sync.Mutex
	actions []action
	counts  map[Point]int
	log     string
}

func newPlan(actions []action, log string) *plan {
	return &plan{actions: actions, counts: map[Point]int{}, log: log}
}

func (p *plan) hit(point Point) error {
	p.mu.Lock()
	p.counts[point]++
	n := p.counts[point]
	p.record(point)
	p.mu.Unlock()
	for _, a := range p.actions {
		if a.Point != point || a.Nth != 0 && a.Nth != n {
			continue
		}
		switch a.Verb {
		case Kill:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		case Panic:
			panic(fmt.Sprintf("crash point %s", point))
		case Delay:
			time.Sleep(a.Delay)
		case Fail:
			return fmt.Errorf("crash point %s", point)
		}
	}
	return nil
}

func (p *plan) record(point Point) {
	if p.log == "" {
		return
	}
	f, err := os.OpenFile(p.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Fprintf(os.Stderr, "cannot record crash point %s: %v\n", point, err)
		return
	}
	defer func() { _ = f.Close() }()
	_, _ = f.WriteString(strings.TrimSpace(string(point)) + "\n")
}
