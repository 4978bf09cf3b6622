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

// givenKinds are the kinds that machines use. The agent has no watch for them,
// so the commands poll.
var givenKinds = []string{spec.KindNetwork, spec.KindVolume, spec.KindFilesystem}

// given holds the fields of a row that following needs.
type given struct {
	Name      string              `json:"name"`
	Status    string              `json:"status"`
	Message   string              `json:"message"`
	Observed  bool                `json:"observed"`
	Attempts  int                 `json:"attempts"`
	NextRetry *time.Time          `json:"next-retry"`
	ErrorKind fault.Kind          `json:"error-kind"`
	Attached  []client.Attachment `json:"attachments"`
}

// awaitsOperator reports that the agent's own retries are not worth waiting
// for. A conflict counts from its second attempt on, because the other object
// may be about to go away.
func (g given) awaitsOperator() bool {
	switch {
	case g.Status != string(spec.StorageError):
		return false
	case g.ErrorKind == fault.NeedsOperator || g.ErrorKind == fault.Invalid:
		return true
	}
	return g.NextRetry == nil || g.ErrorKind == fault.Conflict && g.Attempts > 1
}

// judgeGiven decides whether the object is as declared. An observed status of
// this generation is final or an error.
func judgeGiven(g given) verdict {
	stuck := g.Status == string(spec.StorageError)
	for _, a := range g.Attached {
		stuck = stuck || a.Status == spec.StorageError
	}
	switch {
	case !g.Observed:
		return unsettled
	case g.awaitsOperator(), stuck && g.NextRetry == nil:
		return failed
	case stuck, g.NextRetry != nil:
		return unsettled
	}
	return settled
}

func (g given) phase() string {
	if !g.Observed && g.Status == string(spec.StorageError) {
		return notLooked // the error belongs to an earlier declaration
	}
	text := g.Status
	if g.Message != "" {
		text += ": " + g.Message
	}
	for _, a := range g.Attached {
		if a.Status == spec.StorageError {
			text = fmt.Sprintf("%s for machine/%s: %s", a.Status, a.Machine, a.Message)
		}
	}
	return text
}

// givenGoals are the objects of givenKinds to wait for.
type givenGoals struct{ ready, gone []reference }

func (g givenGoals) all() []reference { return slices.Concat(g.ready, g.gone) }

// givensOf returns the references of givenKinds among KIND/NAMEs.
func givensOf(objects []string) (refs []reference) {
	for _, o := range objects {
		kind, name, _ := strings.Cut(o, "/")
		if slices.Contains(givenKinds, kind) {
			refs = append(refs, reference{kind, name})
		}
	}
	return refs
}

// waitGivens follows the objects until all goals are met. With early set it
// does not wait for an object that waits for a machine: the caller follows the
// machine next.
func (a *app) waitGivens(ctx context.Context, agent Agent, g givenGoals, early bool, timeout time.Duration, timeoutCode int) error {
	whole := a.whole(timeout)
	if len(g.all()) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	show, seen := a.progress(), 0
	stop := show.tick(limited)
	defer stop()
	var lines []progressLine
	err := again(limited, &seen, show.note, func() error {
		now, err := lookAtGivens(limited, agent, g)
		if err != nil {
			return err
		}
		lines = now
		seen++
		show.update(lines)
		for _, l := range lines {
			if l.verdict == unsettled && (!early || !strings.Contains(l.text, "waiting for "+spec.KindMachine+"/")) {
				return errLookAgain
			}
		}
		return errEnough
	})
	switch {
	case errors.Is(err, errEnough):
		return brokenGivens(lines)
	case ctx.Err() != nil:
		return fail(exitInterrupted, "interrupted; the agent goes on")
	case limited.Err() != nil:
		return lateGivens(lines, whole, timeoutCode)
	}
	return err
}

// whole returns the timeout that the user gave; the timeout of this call may be
// only the rest of it.
func (a *app) whole(timeout time.Duration) time.Duration {
	if a.limit == 0 {
		a.limit = timeout
	}
	return a.limit
}

// left returns the rest of a timeout, at least a millisecond.
func (a *app) left(timeout time.Duration, started time.Time) time.Duration {
	return max(timeout-a.env.Now().Sub(started), time.Millisecond)
}

func lookAtGivens(ctx context.Context, agent Agent, g givenGoals) ([]progressLine, error) {
	rows := map[reference]given{}
	for _, kind := range givenKinds {
		if !slices.ContainsFunc(g.all(), func(r reference) bool { return r.kind == kind }) {
			continue
		}
		sent, err := agent.Get(ctx, plural(kind))
		if err != nil {
			return nil, err
		}
		var all []given
		if err := json.Unmarshal(sent, &all); err != nil {
			return nil, fmt.Errorf("cannot read the agent's %s: %w", plural(kind), err)
		}
		for _, row := range all {
			rows[reference{kind, row.Name}] = row
		}
	}
	var lines []progressLine
	for _, r := range g.ready {
		row, there := rows[r]
		l := progressLine{name: r.String(), text: row.phase(), verdict: judgeGiven(row)}
		if !there {
			l.text, l.verdict = "is no longer declared", failed
		}
		lines = append(lines, l)
	}
	for _, r := range g.gone {
		row, there := rows[r]
		l := progressLine{name: r.String(), text: row.phase()}
		switch {
		case !there:
			l.text, l.verdict = "gone", settled
		case row.Observed && row.awaitsOperator():
			l.verdict = failed
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// brokenGivens returns an error that names the objects that failed for good.
func brokenGivens(lines []progressLine) error {
	lines = slices.DeleteFunc(lines, func(l progressLine) bool { return l.verdict != failed })
	if len(lines) == 0 {
		return nil
	}
	return fail(exitError, "%s failed%s", count(len(lines), "object"), listed(lines)).
		hint("mend the cause, then `hostler retry " + lines[0].name + "`; `hostler show " + lines[0].name + "` tells more")
}

func lateGivens(lines []progressLine, timeout time.Duration, code int) error {
	if len(lines) == 0 {
		return fail(code, "timed out after %s: no answer from the agent yet", duration(timeout))
	}
	lines = slices.DeleteFunc(lines, func(l progressLine) bool { return l.verdict == settled })
	return fail(code, "timed out after %s: %s not as declared%s", duration(timeout), count(len(lines), "object"), listed(lines)).
		hint("the agent goes on; wait longer with --timeout")
}

func listed(lines []progressLine) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString("\n  " + l.name + ": " + line(l.text))
	}
	return b.String()
}
