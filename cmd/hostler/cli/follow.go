package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

// A watch's callback returns errEnough to end the watch, and errLookAgain to
// have the watch opened again.
var (
	errEnough    = errors.New("enough")
	errLookAgain = errors.New("look again")
)

// follower compares the rows of all kinds with the goals.
type follower struct {
	agent agent
	goals goals
	show  progress
	// machines and others hold the rows that the agent sent last.
	machines map[string]client.Machine
	others   map[reference]other
	// lines are the last verdicts, in the order of the goals.
	lines  []progressLine
	wanted map[string]bool // whether a machine should run, keyed by machine and generation
	todo   map[string]string
	seen   int
}

func newFollower(agent agent, g goals, show progress) *follower {
	g.remade = slices.DeleteFunc(g.remade, func(r reference) bool { return !slices.Contains(g.ready, r) }) // do not wait for held steps
	f := &follower{agent: agent, goals: g, show: show, machines: map[string]client.Machine{}, others: map[reference]other{}, wanted: map[string]bool{}}
	for _, r := range g.all() {
		f.lines = append(f.lines, progressLine{name: shownAs(r), of: r, text: "no answer from the agent yet"})
	}
	return f
}

// waitFor follows objects until all goals are met. If an object failed for
// good, waitFor stops waiting for this object but still follows the others.
// After the timeout, waitFor returns a failure with timeoutCode that says what
// each object still waits for.
func (a *app) waitFor(ctx context.Context, agent agent, g goals, timeout time.Duration, timeoutCode int) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return a.followUntil(ctx, limited, agent, g, timeout, timeoutCode)
}

// followUntil works like waitFor with a context that ends after the timeout.
func (a *app) followUntil(ctx, limited context.Context, agent agent, g goals, timeout time.Duration, timeoutCode int) error {
	if len(g.all()) == 0 {
		return nil
	}
	defer a.liftHold()()
	f := newFollower(agent, g, a.progress())
	stopTicks := f.show.tick(limited)
	err := f.run(limited)
	stopTicks()
	f.show.end()
	switch {
	case ctx.Err() != nil:
		return fail(exitInterrupted, "interrupted; the agent continues")
	case limited.Err() != nil:
		return f.timedOut(timeout, timeoutCode)
	case err != nil:
		return err
	}
	return f.broken()
}

// run watches until every object has settled or failed.
func (f *follower) run(ctx context.Context) error {
	var kinds, names []string
	for _, r := range f.goals.all() {
		if word := plural(r.kind); !slices.Contains(kinds, word) {
			kinds = append(kinds, word)
		}
	}
	// Watch all machines if the goals contain removed machines, because a watch
	// by name covers only existing machines.
	if !slices.ContainsFunc(f.goals.gone, func(r reference) bool { return r.kind == spec.KindMachine }) {
		names = f.goals.machines()
	}
	err := again(ctx, &f.seen, f.show.note, func() error {
		came := map[string]bool{}
		return f.agent.WatchRows(ctx, kinds, names, func(kind string, rows json.RawMessage) error {
			if err := f.take(kind, rows); err != nil {
				return fmt.Errorf("cannot read the agent's %s: %w", kind, err)
			}
			if came[kind] = true; len(came) < len(kinds) {
				return nil
			}
			f.seen++
			if f.look(ctx); f.goesOn() {
				return nil
			}
			return f.checked(ctx)
		})
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// take stores the rows of a kind.
func (f *follower) take(word string, rows json.RawMessage) error {
	kind, err := parseKind(word)
	if err != nil {
		return err
	}
	if kind == spec.KindMachine {
		var all []client.Machine
		clear(f.machines)
		err = json.Unmarshal(rows, &all)
		for _, m := range all {
			f.machines[m.Name] = m
		}
		return err
	}
	var all []other
	for r := range f.others {
		if r.kind == kind {
			delete(f.others, r)
		}
	}
	err = json.Unmarshal(rows, &all)
	for _, o := range all {
		f.others[reference{kind, o.Name}] = o
	}
	return err
}

// look updates each line with the verdict on its object, and shows the lines.
func (f *follower) look(ctx context.Context) {
	for i := range f.lines {
		l := &f.lines[i]
		m, exists := f.machines[l.of.name]
		o, there := f.others[l.of]
		life := m.Life
		if l.of.kind != spec.KindMachine {
			exists, life = there, o.Life
		}
		f.goals.remade = slices.DeleteFunc(f.goals.remade, func(r reference) bool { return r == l.of && exists && life == "alive" })
		previous := slices.Contains(f.goals.remade, l.of)
		gone := previous || slices.Contains(f.goals.gone, l.of)
		if l.of.kind == spec.KindMachine {
			l.verdict, l.text = f.judgeMachine(ctx, m, exists, gone)
			l.percent = m.Percent
			if what := f.todo[l.of.name]; l.verdict == asDeclared && what != "" {
				l.text = what
			}
		} else {
			l.verdict, l.text = judgeOther(o, there, gone, f.goals.held)
		}
		if previous && l.verdict != failed {
			l.verdict, l.text = undecided, "the previous object is being removed"
		}
	}
	f.show.update(slices.Clone(f.lines))
}

// goesOn reports whether the wait continues. Networks, volumes and filesystems
// become ready before their machines and are removed after the machines. If one
// of these objects failed, goesOn does not wait for the machines.
func (f *follower) goesOn() bool {
	var machines, others, underWay, remade, brokenMachines, brokenOthers bool
	for _, l := range f.lines {
		machine, gone := l.of.kind == spec.KindMachine, slices.Contains(f.goals.gone, l.of)
		remade = remade || l.verdict == undecided && slices.Contains(f.goals.remade, l.of) && !f.waitsForMachine(l.of, failed)
		switch {
		case machine && l.verdict == undecided:
			machines = true
		case machine:
			brokenMachines = brokenMachines || l.verdict == failed
		case l.verdict == undecided:
			others = true
			underWay = underWay || !gone && !f.waitsForMachine(l.of, undecided, failed)
		default:
			brokenOthers = brokenOthers || l.verdict == failed && !gone
		}
	}
	switch {
	case remade, underWay:
		return true
	case brokenOthers:
		return false
	case machines:
		return true
	case brokenMachines:
		return false
	}
	return others
}

// waitsForMachine reports whether the object may wait for a followed machine with one
// of these verdicts, because the machine uses the object.
func (f *follower) waitsForMachine(r reference, with ...verdict) bool {
	return slices.ContainsFunc(f.others[r].Attached, func(a client.Attachment) bool {
		return slices.ContainsFunc(f.lines, func(l progressLine) bool { return l.of == machineNamed(a.Machine) && slices.Contains(with, l.verdict) })
	})
}

// checked returns errEnough if no work remains, which ends the watch. Otherwise
// it returns errLookAgain, after which the watch is opened again. A transient
// error of the check does not end the wait, because the watch still works and
// reports its own errors.
func (f *follower) checked(ctx context.Context) error {
	broken := slices.ContainsFunc(f.lines, func(l progressLine) bool { return l.verdict == failed })
	if f.goals.check == nil || broken {
		return errEnough
	}
	todo, err := f.goals.check(ctx)
	before := f.todo
	if fault.Is(err, fault.Transient) {
		todo = map[string]string{}
		for _, name := range f.goals.machines() {
			todo[name] = "not known to be done: " + err.Error()
		}
		err = nil
	}
	followed := f.goals.machines()
	maps.DeleteFunc(todo, func(name, _ string) bool { return !slices.Contains(followed, name) })
	f.todo = todo
	switch {
	case err != nil:
		return err
	case len(todo) > 0 || len(before) > 0:
		return errLookAgain
	}
	return errEnough
}

// judgeMachine returns the verdict on a machine and its phase. exists is true
// if the agent has the machine. gone is true if the goal is the machine's
// removal.
func (f *follower) judgeMachine(ctx context.Context, m client.Machine, exists, gone bool) (verdict, string) {
	if gone {
		switch {
		case !exists:
			return asDeclared, "gone"
		case m.Status == spec.MachineError && m.NextRetry == nil && m.Life != "alive" && m.Observed:
			return failed, phase(m)
		}
		return undecided, phase(m)
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
	if json.Unmarshal(o.Status, &status) == nil && status.NotAutostarted() && m.Observed {
		want = false
	}
	f.wanted[key] = want
	return want
}

// broken returns an error that names the objects that failed for good, or nil
// if there are none.
func (f *follower) broken() error {
	lines := slices.DeleteFunc(slices.Clone(f.lines), func(l progressLine) bool { return l.verdict != failed })
	machines := slices.DeleteFunc(slices.Clone(lines), func(l progressLine) bool { return l.of.kind != spec.KindMachine })
	noun := "machine"
	switch {
	case len(lines) == 0:
		return nil
	case len(machines) < len(lines): // other objects failed, which made machines fail, if any did
		lines, noun = lines[:len(lines)-len(machines)], "object"
	}
	for i, l := range lines {
		if m, there := f.machines[l.of.name]; there && l.of.kind == spec.KindMachine {
			lines[i].text = m.Message
		}
	}
	object := lines[0].of.String()
	return fail(exitError, "%s failed%s", count(len(lines), noun), listed(lines)).
		hint("fix the cause, then `hostler retry " + object + "`; `hostler show " + object + "` shows more")
}

func (f *follower) timedOut(timeout time.Duration, code int) error {
	var open []progressLine
	noun, what := "machine", "not ready"
	if len(f.goals.ready) == 0 {
		what = "not gone"
	}
	for _, l := range f.lines {
		machine := l.of.kind == spec.KindMachine
		if l.verdict == asDeclared {
			if l.text = f.todo[l.of.name]; !machine || l.text == "" {
				continue
			}
		}
		if m := f.machines[l.of.name]; machine && m.NextRetry != nil {
			l.text += fmt.Sprintf(" (attempt %d)", m.Attempts)
		}
		if open = append(open, l); !machine {
			noun, what = "object", "not as declared"
		}
	}
	return fail(code, "timed out after %s: %s %s%s", duration(timeout), count(len(open), noun), what, listed(open)).
		hint("the agent continues; wait longer with --timeout")
}

// listed returns a line of text for each object.
func listed(lines []progressLine) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString("\n  " + l.name + ": " + line(l.text))
	}
	return b.String()
}
