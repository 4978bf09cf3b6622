package cli

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/internal/version"
)

// versions is the output of `hostler version -o json`. Agent is null if no
// agent answers.
type versions struct {
	Client string          `json:"client"`
	Go     string          `json:"go"`
	Agent  *client.Version `json:"agent"`
}

func (a *app) versionCommand() *cobra.Command {
	return prints(&cobra.Command{
		Use:   "version",
		Short: "Print the versions of this command and of the agent",
		Args:  takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: version.Version, Go: runtime.Version()}
			agent, err := a.agent().Version(cmd.Context())
			if err == nil {
				v.Agent = &agent
			}
			if a.output != outTable {
				return a.document(v)
			}
			fmt.Fprintf(a.env.Stdout, "hostler %s (%s)\n", v.Client, v.Go)
			switch {
			case err == nil:
				fmt.Fprintf(a.env.Stdout, "agent   %s (namespace %s, pid %d)\n", line(agent.Version), line(agent.Namespace), agent.PID)
			case errors.Is(err, client.ErrNotRunning):
				fmt.Fprintln(a.env.Stdout, "agent   not running")
			default:
				fmt.Fprintf(a.env.Stdout, "agent   unknown: %s\n", line(err.Error()))
			}
			return nil
		},
	}, outTable, outJSON, outYAML)
}
