package cli

import (
	"github.com/spf13/cobra"

	"hostler/agent/spec"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of declarations, for editors",
		Args:  takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.env.Stdout.Write(spec.Schema())
			return err
		},
	}
}
