package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

// poll is the interval for objects that have no watch.
const poll = time.Second

func (a *app) waitCommand() *cobra.Command {
	var what string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait KIND/NAME --for ready|gone",
		Short: "Wait until something is ready or gone",
		Long: "Wait until a thing (or everything of a declaration) is ready, or until a thing is\n" +
			"gone. A machine that is not to run, by its declaration or by hand, is ready when it is\n" +
			"stopped. Exit code 124 says that the time was up, 1 that it failed for good.",
		Example: "  hostler wait machine/web --for ready --timeout 5m\n  hostler wait declaration/web --for gone",
		Args:    takes(1, 1, "one KIND/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := parseReference(args[0])
			switch {
			case err != nil:
				return err
			case what != "ready" && what != "gone":
				return usage("--for takes ready or gone, got %q", what)
			case timeout <= 0:
				return usage("--timeout must be longer than nothing, got %s", timeout)
			}
			return a.wait(cmd.Context(), r, what == "gone", timeout)
		},
		ValidArgsFunction: a.completeReferences,
	}
	cmd.Flags().StringVar(&what, "for", "ready", "the `STATE` to wait for: ready or gone")
	completeFlag(cmd, "for", "ready", "gone")
	addTimeout(cmd, &timeout, "to wait")
	return cmd
}

func (a *app) wait(ctx context.Context, r reference, gone bool, timeout time.Duration) error {
	agent := a.agent()
	switch {
	case r.kind == spec.KindMachine && gone:
		return a.waitFor(ctx, agent, goals{gone: map[string]bool{r.name: true}}, timeout, exitTimeout)
	case r.kind == spec.KindMachine:
		if _, err := agent.Machines(ctx, r.name); err != nil {
			return near(ctx, agent, r, err)
		}
		g := goals{ready: map[string]bool{r.name: true}}
		g.check = func(ctx context.Context) (map[string]string, error) { return restarting(ctx, agent, g.ready) }
		return a.waitFor(ctx, agent, g, timeout, exitTimeout)
	case slices.Contains(givenKinds, r.kind):
		g := givenGoals{ready: []reference{r}}
		if gone {
			g = givenGoals{gone: []reference{r}}
		} else if _, err := agent.Show(ctx, r.kind, r.name); err != nil {
			return near(ctx, agent, r, err)
		}
		return a.waitGivens(ctx, agent, g, false, timeout, exitTimeout)
	case gone:
		return waitAbsent(ctx, agent, r, timeout)
	case r.kind == spec.KindDeclaration:
		rows, err := agent.Declarations(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(rows, func(d client.Declaration) bool { return d.Name == r.name })
		if i < 0 {
			return fail(exitError, "there is no declaration %q", r.name)
		}
		g := goals{ready: map[string]bool{}}
		for _, m := range machinesOf(rows[i]) {
			g.ready[m] = true
		}
		givens := givenGoals{ready: givensOf(rows[i].Objects)}
		started := a.env.Now()
		if err := a.waitGivens(ctx, agent, givens, true, timeout, exitTimeout); err != nil {
			return err
		}
		if err := a.waitFor(ctx, agent, g, a.left(timeout, started), exitTimeout); err != nil {
			return err
		}
		return a.waitGivens(ctx, agent, givens, false, a.left(timeout, started), exitTimeout)
	}
	return usage("wait does not follow a %s", r.kind)
}

// waitAbsent polls until the agent has no such object.
func waitAbsent(ctx context.Context, agent Agent, r reference, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	t := time.NewTicker(poll)
	defer t.Stop()
	for {
		_, err := agent.Show(limited, r.kind, r.name)
		switch {
		case fault.Is(err, fault.NotFound):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case limited.Err() != nil:
			return fail(exitTimeout, "timed out after %s: %s is still there", duration(timeout), r)
		case err != nil:
			return err
		}
		select {
		case <-limited.Done():
		case <-t.C:
		}
	}
}
