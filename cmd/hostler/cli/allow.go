package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) allowCommand() *cobra.Command {
	return prints(&cobra.Command{
		Use:   "allow IMPACT KIND/NAME...",
		Short: "Consent to held steps",
		Long: "Consent to steps that are held: restart or recreate of a machine, restart of a network, or\n" +
			"destroy of an object that no declaration names any more. `hostler status` lists held removals.",
		Example: "  hostler allow destroy machine/old volume/old-data\n  hostler allow restart machine/web",
		Args:    takes(2, -1, "an IMPACT and a KIND/NAME"),
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
		return usage("unknown impact %q%s", impact, didYouMean(impact, allowWords)).hint("it takes " + strings.Join(allowWords, ", "))
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
		} else if a.output == outName {
			fmt.Fprintln(a.env.Stdout, line(o.Object))
		} else {
			a.note("%s of %s is allowed", impact, line(o.Object))
		}
	}
	return together(ctx, broken)
}
