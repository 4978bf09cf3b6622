package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler/internal/fault"
)

func (a *app) allowCommand() *cobra.Command {
	return prints(&cobra.Command{
		Use:   "allow IMPACT KIND/NAME...",
		Short: "Consent to held steps",
		Long: "Consent to steps that are held: restart or recreate of a machine, restart of a network, or\n" +
			"destroy of an object that no declaration names any more. `hostler status` lists held removals.",
		Example: "  hostler allow destroy machine/old volume/old-data\n  hostler allow restart machine/web",
		Args:    cobra.MinimumNArgs(2),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.allow(cmd.Context(), args[0], args[1:]) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return allowWords, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeReferences(cmd, args[1:], toComplete)
		},
	}, outTable, outName)
}

func (a *app) allow(ctx context.Context, impact string, args []string) error {
	if !slices.Contains(allowWords, impact) {
		return usage("allow does not know the impact %q%s", impact, didYouMean(impact, allowWords)).hint("it takes " + strings.Join(allowWords, ", "))
	}
	refs, err := parseReferences(args)
	if err != nil {
		return err
	}
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = r.String()
	}
	agent := a.agent()
	outcomes, err := agent.Allow(ctx, impact, names)
	if err != nil {
		return err
	}
	var broken []error
	for i, o := range outcomes {
		if err := o.Err(); err != nil {
			broken = append(broken, near(ctx, agent, refs[i], err))
		} else {
			a.note("%s of %s is allowed", impact, line(o.Object))
		}
	}
	return together(ctx, broken)
}

// waitRemade waits until objects that are being removed exist again.
func (a *app) waitRemade(ctx context.Context, agent Agent, objects []string, timeout time.Duration) error {
	if len(objects) == 0 {
		return nil
	}
	refs, err := parseReferences(objects)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	show, seen := a.progress(), 0
	stop := show.tick(limited)
	defer stop()
	err = again(limited, &seen, show.note, func() error {
		var lines []progressLine
		open := false
		for _, r := range refs {
			o, err := agent.Show(limited, r.kind, r.name)
			if err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
			l := progressLine{name: r.String(), text: "is declared again", verdict: settled}
			if err != nil || o.Life != "alive" {
				l.text, l.verdict, open = "the former one is being removed", unsettled, true
			}
			lines = append(lines, l)
		}
		seen++
		show.update(lines)
		if open {
			return errLookAgain
		}
		return errEnough
	})
	switch {
	case errors.Is(err, errEnough):
		return nil
	case ctx.Err() != nil:
		return fail(exitInterrupted, "interrupted; the agent goes on")
	case limited.Err() != nil:
		return fail(exitError, "timed out after %s: %s still being removed", duration(timeout), strings.Join(objects, ", ")).
			hint("`hostler show " + objects[0] + "` tells why; the agent goes on")
	}
	return err
}
