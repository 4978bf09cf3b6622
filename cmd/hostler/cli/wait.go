package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
)

func (a *app) waitCommand() *cobra.Command {
	var what string
	var all bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait KIND/NAME --for ready|gone | --all",
		Short: "Wait until an object is ready or gone",
		Long: "Wait until an object (or all objects of a declaration) is ready, or until an object is\n" +
			"gone. A machine that is not to run, by its declaration or by hand, is ready when it is\n" +
			"stopped. Exit code 124: the time was up; 1: it failed for good.\n\n" +
			"With --all, wait until the agent read conf.d and every declared object is ready. A file of\n" +
			"conf.d with an error, or in conflict with another document, ends the wait with exit code 1.",
		Example: "  hostler wait machine/web --for ready --timeout 5m\n  hostler wait declaration/web --for gone\n  hostler wait --all --timeout 20m",
		Args: func(cmd *cobra.Command, args []string) error {
			if all {
				return takes(0, 0, "")(cmd, args)
			}
			return takes(1, 1, "one KIND/NAME, or --all")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case timeout <= 0:
				return usage("--timeout must be positive, got %s", timeout)
			case all && what != "ready":
				return usage("--all waits for ready, not for %q", what)
			case all:
				return a.waitAll(cmd.Context(), timeout)
			}
			r, err := parseReference(args[0])
			switch {
			case err != nil:
				return err
			case what != "ready" && what != "gone":
				return usage("--for takes ready or gone, got %q", what)
			}
			return a.wait(cmd.Context(), r, what == "gone", timeout)
		},
		ValidArgsFunction: a.completeReferences,
	}
	cmd.Flags().StringVar(&what, "for", "ready", "the `STATE` to wait for: ready or gone")
	completeFlag(cmd, "for", "ready", "gone")
	cmd.Flags().BoolVar(&all, "all", false, "wait for all declared objects, after conf.d was read")
	addTimeout(cmd, &timeout, "to wait")
	return cmd
}

func (a *app) wait(ctx context.Context, r reference, gone bool, timeout time.Duration) error {
	agent := a.agent()
	g := goals{ready: []reference{r}}
	switch {
	case gone:
		g = goals{gone: []reference{r}}
	case r.kind == spec.KindMachine:
		if _, err := agent.Machines(ctx, r.name); err != nil {
			return near(ctx, agent, r, err)
		}
		g.check = func(ctx context.Context) (map[string]string, error) { return restarting(ctx, agent, g.machines()) }
	case r.kind == spec.KindDeclaration:
		rows, err := agent.Declarations(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(rows, func(d client.Declaration) bool { return d.Name == r.name })
		if i < 0 {
			return fail(exitError, "there is no declaration %q", r.name)
		}
		g.ready = referencesOf(rows[i].Objects)
	default:
		if _, err := agent.Show(ctx, r.kind, r.name); err != nil {
			return near(ctx, agent, r, err)
		}
	}
	return a.waitFor(ctx, agent, g, timeout, exitTimeout)
}
