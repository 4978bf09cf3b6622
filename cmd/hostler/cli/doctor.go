package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
)

func (a *app) doctorCommand() *cobra.Command {
	var strict bool
	cmd := prints(&cobra.Command{
		Use:   "doctor",
		Short: "Check the container types of this host and their obstacles",
		Long:  "Check which container types this host can run, and list missing and conflicting parts with the\ncommand that mends each. Exit code 1: there are errors; with --strict: errors or warnings.",
		Args:  takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.doctor(cmd.Context(), strict)
		},
	}, outTable, outJSON, outYAML)
	cmd.Flags().BoolVar(&strict, "strict", false, "count warnings as errors")
	return cmd
}

func (a *app) doctor(ctx context.Context, strict bool) error {
	checks, err := a.agent().Doctor(ctx)
	if errors.Is(err, client.ErrNotRunning) {
		checks, err = withoutAgent(a.socket), nil
	}
	if err != nil {
		return err
	}
	n := map[string]int{}
	for _, c := range checks {
		n[c.Result]++
	}
	if a.output == outTable {
		a.printChecks(checks)
		a.note("%s, %s, %d ok", count(n["error"], "error"), count(n["warning"], "warning"), n["ok"])
	} else if err := a.document(pick(checks, every(len(checks)))); err != nil {
		return err
	}
	if n["error"] > 0 || strict && n["warning"] > 0 {
		return silent(exitError)
	}
	return nil
}

// configFile is the configuration that the host's own agent reads at its start.
const configFile = "/etc/hostler/hostler.yaml"

// withoutAgent returns the checks that need no agent. They say that no agent
// answers, and whether the configuration would keep the agent from starting.
func withoutAgent(socket string) []client.Check {
	checks := []client.Check{{
		Name: "agent", Result: "error", Message: "no agent answers at " + socket,
		Mend: "systemctl start hostlerd; `journalctl -u hostlerd -n 20` says why it ended",
	}}
	content, err := readConfig(configFile)
	if socket != defaultSocket || err != nil {
		return checks
	}
	c := client.Check{Name: "configuration", Result: "ok", Message: configFile + " is valid"}
	if _, _, err := spec.ParseConfig(configFile, content); err != nil {
		c.Result, c.Message, c.Mend = "error", spec.Summary(err), "edit "+configFile
	}
	return append(checks, c)
}

// first returns the first line of a text.
func first(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return text
}

// printChecks prints a line per check, with the remedy below the line. With -q
// it prints only warnings and errors.
func (a *app) printChecks(checks []client.Check) {
	c := a.colours()
	wide := 0
	for _, ch := range checks {
		wide = max(wide, cells(line(ch.Name)))
	}
	for _, ch := range checks {
		if a.quiet && ch.Result == "ok" {
			continue
		}
		fmt.Fprintf(a.env.Stdout, "%s%s  %s  %s\n", c.word(line(ch.Result)), pad("", 7-cells(line(ch.Result))),
			pad(line(ch.Name), wide), line(first(ch.Message)))
		if ch.Mend != "" {
			fmt.Fprintf(a.env.Stdout, "%s-> %s\n", pad("", wide+11), line(ch.Mend))
		}
	}
}
