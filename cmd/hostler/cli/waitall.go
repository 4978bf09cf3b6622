package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
)

// waitAll waits until conf.d was read and all its files are in force, and then
// until every declared object is ready. It fails at once if a file has an error
// that only the user can mend. The timeout covers all of this together.
func (a *app) waitAll(ctx context.Context, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	agent := a.agent()
	if err := a.waitForFolder(ctx, limited, agent, timeout, ""); err != nil {
		return err
	}
	g, err := declaredGoals(limited, agent)
	switch {
	case ctx.Err() == nil && limited.Err() != nil:
		return fail(exitTimeout, "timed out after %s: the agent did not list the declared objects", duration(timeout))
	case err != nil:
		return err
	}
	return a.followUntil(ctx, limited, agent, g, timeout, exitTimeout)
}

// waitForFolder waits until the agent read the files of conf.d in their present
// form and put them in force, or until limited, which ends after the timeout. Only
// files whose names begin with the prefix count.
func (a *app) waitForFolder(ctx, limited context.Context, agent agent, timeout time.Duration, prefix string) error {
	var last client.FolderState
	seen := 0
	show := a.progress()
	err := again(limited, &seen, show.note, func() error {
		return agent.WatchFolder(limited, func(f client.FolderState) error {
			seen++
			f.Refused = slices.DeleteFunc(f.Refused, func(r client.RefusedFile) bool { return !strings.HasPrefix(filepath.Base(r.Path), prefix) })
			final := slices.ContainsFunc(f.Refused, func(r client.RefusedFile) bool { return !r.Retried })
			if last = f; f.Read && (len(f.Refused) == 0 || final) {
				return errEnough
			}
			return nil
		})
	})
	switch {
	case ctx.Err() != nil:
		return fail(exitInterrupted, "interrupted; the agent continues")
	case limited.Err() != nil && last.Path == "":
		return fail(exitTimeout, "timed out after %s: the agent did not answer", duration(timeout))
	case limited.Err() != nil && len(last.Refused) == 0:
		return fail(exitTimeout, "timed out after %s: %s is not read yet", duration(timeout), last.Path)
	case limited.Err() != nil:
		return fail(exitTimeout, "timed out after %s: %s", duration(timeout), refusedFiles(last.Refused))
	case !errors.Is(err, errEnough):
		return err
	case len(last.Refused) > 0:
		return fail(exitError, "%s", refusedFiles(last.Refused)).hint("correct it; `hostler validate --system` checks it before the agent reads it")
	}
	return nil
}

// refusedFiles returns the number of files that are not in force, with a line
// for each.
func refusedFiles(all []client.RefusedFile) string {
	verb := "is"
	if len(all) > 1 {
		verb = "are"
	}
	lines := []string{fmt.Sprintf("%s %s not in force", count(len(all), "file"), verb)}
	for _, f := range all {
		reason := f.Reason
		if !strings.Contains(reason, f.Path) {
			reason = f.Path + ": " + reason
		}
		lines = append(lines, line(reason))
	}
	return strings.Join(lines, "\n  ")
}

// declaredGoals returns the goal that all declared objects are ready. It leaves out
// objects that are declared no more, e.g. held ones, and waits for the end of an object
// that is being removed and made again, unless its removal failed for good.
func declaredGoals(ctx context.Context, agent agent) (goals, error) {
	var g goals
	declarations, err := agent.Declarations(ctx)
	if err != nil {
		return g, err
	}
	for _, d := range declarations {
		g.ready = append(g.ready, referencesOf(d.Objects)...)
	}
	machines, err := agent.Machines(ctx)
	if err != nil {
		return g, err
	}
	alive := map[reference]bool{}
	for _, m := range machines {
		alive[machineNamed(m.Name)] = m.Life == "alive"
	}
	for _, kind := range []string{spec.KindNetwork, spec.KindVolume, spec.KindFilesystem} {
		raw, err := agent.Get(ctx, plural(kind))
		if err != nil {
			return g, err
		}
		var rows []other
		if err := json.Unmarshal(raw, &rows); err != nil {
			return g, fmt.Errorf("cannot read the agent's %s: %w", plural(kind), err)
		}
		for _, o := range rows {
			alive[reference{kind, o.Name}] = o.Life == "alive"
		}
	}
	for _, r := range g.ready {
		if !alive[r] {
			g.remade = append(g.remade, r)
		}
	}
	g.check = func(ctx context.Context) (map[string]string, error) { return restarting(ctx, agent, g.machines()) }
	return g, nil
}

// statusWait waits like waitAll and prints the status then.
func (a *app) statusWait(ctx context.Context, timeout time.Duration) error {
	waited := a.waitAll(ctx, timeout)
	if ctx.Err() != nil {
		return waited
	}
	st, err := a.agent().Status(ctx)
	if err != nil {
		if waited != nil {
			return waited
		}
		return err
	}
	if err := a.printStatus(st); waited != nil || err != nil {
		return cmp.Or(waited, err)
	}
	if reasons := degraded(st); len(reasons) > 0 {
		return fail(exitDegraded, "all objects are ready, but the host is degraded\n  %s", strings.Join(reasons, "\n  "))
	}
	return nil
}

// degraded returns the reasons why a host whose objects are all ready still
// needs the operator.
func degraded(st client.Status) (reasons []string) {
	if len(st.Drifted) > 0 {
		reasons = append(reasons, drift(st.Drifted))
	}
	for _, w := range st.Workers {
		if w.State == "failed" || w.State == "masked" {
			reasons = append(reasons, line("the worker "+w.Name+" is "+w.State+": "+w.Message))
		}
	}
	if st.Held != "" {
		reasons = append(reasons, line(st.Held))
	}
	if st.Copied != "" {
		reasons = append(reasons, st.Copied+"; `hostler adopt --host` makes it this host's store, `hostler clean` removes it")
	}
	if st.Guard != nil {
		reasons = append(reasons, "the change of "+st.Guard.Object+" waits for `hostler confirm`")
	}
	return reasons
}
