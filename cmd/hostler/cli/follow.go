package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

// goals are the machines to wait for: until they are ready, or until they are
// gone.
type goals struct {
	ready, gone map[string]bool
	// check returns the remaining work by machine. It is asked when all
	// machines look settled: their status may belong to a generation whose
	// steps are about to start.
	check func(ctx context.Context) (map[string]string, error)
}

func (g goals) names() []string {
	var out []string
	for n := range g.ready {
		out = append(out, n)
	}
	for n := range g.gone {
		out = append(out, n)
	}
	slices.SortFunc(out, natural)
	return out
}

// errEnough ends a watch from inside; errLookAgain makes the caller open it
// again.
var (
	errEnough    = errors.New("enough")
	errLookAgain = errors.New("look again")
)

// follower compares each set of rows with the goals.
type follower struct {
	agent  Agent
	goals  goals
	show   progress
	last   map[string]client.Machine
	wanted map[string]bool // machine and generation → is to run
	todo   map[string]string
	seen   int
}

// waitFor follows machines until all goals are met. A machine that failed for
// good ends the wait for that machine at once; the others are still followed.
// After the timeout waitFor returns a failure with the given code that says
// what each machine still waits for.
func (a *app) waitFor(ctx context.Context, agent Agent, g goals, timeout time.Duration, timeoutCode int) error {
	whole := a.whole(timeout)
	if len(g.ready)+len(g.gone) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	f := &follower{agent: agent, goals: g, show: a.progress(), last: map[string]client.Machine{}, wanted: map[string]bool{}}
	stopTicks := f.show.tick(limited)
	broken, err := f.run(limited)
	stopTicks()
	f.show.end()
	switch {
	case ctx.Err() != nil:
		return fail(exitInterrupted, "interrupted; the agent goes on")
	case limited.Err() != nil:
		return f.timedOut(whole, timeoutCode)
	case err != nil:
		return err
	case len(broken) > 0:
		return f.broken(broken)
	}
	return nil
}

// run watches until every machine has settled or failed.
func (f *follower) run(ctx context.Context) (broken []string, err error) {
	err = again(ctx, &f.seen, f.show.note, func() error {
		return f.agent.WatchMachines(ctx, f.watched(), func(rows []client.Machine) error {
			f.seen++
			var open bool
			if open, broken = f.look(ctx, rows); open {
				return nil
			}
			return f.checked(ctx, len(broken) > 0)
		})
	})
	if errors.Is(err, errEnough) {
		return broken, nil
	}
	return nil, err
}

// checked ends the watch if no work remains; otherwise it has the watch opened
// again. A transient error of the check does not end the wait: the watch still
// works and reports its own errors.
func (f *follower) checked(ctx context.Context, broken bool) error {
	if f.goals.check == nil || broken {
		return errEnough
	}
	todo, err := f.goals.check(ctx)
	before := f.todo
	if fault.Is(err, fault.Transient) {
		todo = map[string]string{}
		for _, name := range f.goals.names() {
			todo[name] = "not known to be done: " + err.Error()
		}
		err = nil
	}
	f.todo = todo
	switch {
	case err != nil:
		return err
	case len(todo) > 0 || len(before) > 0:
		return errLookAgain
	}
	return errEnough
}

// watched returns the machines to watch. It is nil (all machines) when some
// must go: a watch by name covers existing machines only.
func (f *follower) watched() []string {
	if len(f.goals.gone) > 0 {
		return nil
	}
	return f.goals.names()
}

// look judges a set of rows. open says that a machine is still in progress;
// broken lists the machines that failed for good.
func (f *follower) look(ctx context.Context, rows []client.Machine) (open bool, broken []string) {
	there := map[string]client.Machine{}
	for _, m := range rows {
		there[m.Name] = m
	}
	var lines []progressLine
	for _, name := range f.goals.names() {
		m, exists := there[name]
		v, text := f.judge(ctx, m, exists, name)
		if what := f.todo[name]; v == settled && what != "" {
			text = what
		}
		f.last[name] = m
		switch v {
		case failed:
			broken = append(broken, name)
		case unsettled:
			open = true
		}
		lines = append(lines, progressLine{name: name, text: text, verdict: v, percent: m.Percent})
	}
	f.show.update(lines)
	return open, broken
}

func (f *follower) judge(ctx context.Context, m client.Machine, exists bool, name string) (verdict, string) {
	if f.goals.gone[name] {
		switch {
		case !exists:
			return settled, "gone"
		case m.Status == spec.MachineError && m.NextRetry == nil && m.Life != "alive" && m.Observed:
			return failed, phase(m)
		}
		return unsettled, phase(m)
	}
	if !exists {
		return failed, "is no longer declared"
	}
	wantRunning := true
	if m.Status == spec.MachineStopped && m.Observed {
		wantRunning = f.wantsRunning(ctx, m)
	}
	return judge(m, wantRunning), phase(m)
}

// wantsRunning asks the agent once per generation whether a stopped machine
// should run.
func (f *follower) wantsRunning(ctx context.Context, m client.Machine) bool {
	key := fmt.Sprintf("%s@%d", m.UID, m.Generation)
	if want, known := f.wanted[key]; known {
		return want
	}
	o, err := f.agent.Show(ctx, spec.KindMachine, m.Name)
	if err != nil {
		return true
	}
	var r spec.MachineRecord
	if json.Unmarshal(o.Spec, &r) != nil {
		return true
	}
	want := r.Machine.Running == nil || *r.Machine.Running
	if r.PowerOverride != nil {
		want = *r.PowerOverride
	}
	var status spec.MachineStatus
	if json.Unmarshal(o.Status, &status) == nil && status.Rests() && m.Observed {
		want = false
	}
	f.wanted[key] = want
	return want
}

func (f *follower) broken(names []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s failed", count(len(names), "machine"))
	for _, n := range names {
		text := "is no longer declared"
		if m := f.last[n]; m.Name != "" {
			text = m.Message
		}
		b.WriteString("\n  " + n + ": " + line(text))
	}
	return fail(exitError, "%s", b.String()).
		hint("mend the cause, then `hostler retry machine/" + names[0] + "`; `hostler show machine/" + names[0] + "` tells more")
}

func (f *follower) timedOut(timeout time.Duration, code int) error {
	var b strings.Builder
	var open []string
	for _, n := range f.goals.names() {
		m, looked := f.last[n]
		text := "no answer from the agent yet"
		if looked {
			v, t := f.judge(context.Background(), m, m.Name != "", n)
			text = t
			if v == settled {
				if text = f.todo[n]; text == "" {
					continue
				}
			}
			if m.NextRetry != nil {
				text += fmt.Sprintf(" (attempt %d)", m.Attempts)
			}
		}
		open = append(open, n)
		b.WriteString("\n  " + n + ": " + line(text))
	}
	what := "not ready"
	if len(f.goals.ready) == 0 {
		what = "not gone"
	}
	return fail(code, "timed out after %s: %s %s%s", duration(timeout), count(len(open), "machine"), what, b.String()).
		hint("the agent goes on; wait longer with --timeout")
}
