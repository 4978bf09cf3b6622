package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"hostler/agent/client"
)

func (a *app) confirmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "confirm",
		Short: "Keep a guarded change of the host's network",
		Long: "Keep the change of the host's own network that was applied with --confirm and waits to be\n" +
			"confirmed. Without a confirmation in time it is undone.",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			object, err := a.agent().Confirm(cmd.Context())
			if err != nil {
				return err
			}
			a.note("the change for %s is confirmed", line(object))
			return nil
		},
	}
}

func (a *app) revertCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revert",
		Short: "Take back a guarded change of the host's network",
		Long: "Revert the change of the host's own network that is under way or waits to be confirmed. It\n" +
			"is made again when its declaration changes or `hostler retry network/NAME` asks for it.",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			object, err := a.agent().Revert(cmd.Context())
			if err != nil {
				return err
			}
			a.note("the change for %s is undone", line(object))
			return nil
		},
	}
}

// guarded prints a change of the host's own network that is not kept yet.
func (s sheet) guarded(g *client.Guarded) {
	if g == nil {
		return
	}
	text := fmt.Sprintf("the change for %s is being made", g.Object)
	if g.Phase == "confirming" {
		text = fmt.Sprintf("the change for %s waits for `hostler confirm`; it is undone %s", g.Object, until(s.now, &g.Deadline))
	}
	if !g.Watched {
		text += "; its watchdog is not at work"
	}
	s.field("Guard", text)
}
