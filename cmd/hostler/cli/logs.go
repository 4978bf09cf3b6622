package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) logsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logs MACHINE",
		Short: "Print a machine's console log",
		Long:  "Print a machine's console log. On a terminal control characters are escaped, colours kept;\nelsewhere it is printed as it is.",
		Args:  takes(1, 1, "one MACHINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, err := parseMachine(args[0])
			if err != nil {
				return err
			}
			return a.logs(cmd.Context(), machine)
		},
		ValidArgsFunction: a.completeMachine,
	}
}

func (a *app) logs(ctx context.Context, machine string) error {
	agent := a.agent()
	r, err := agent.Logs(ctx, machine)
	if err != nil {
		return near(ctx, agent, machineNamed(machine), err)
	}
	defer r.Close()
	if !a.env.Term.Output() {
		_, err = io.Copy(a.env.Stdout, r)
		return err
	}
	return tame(a.env.Stdout, r, bool(a.colours()))
}

// colourSequence is what a terminal takes as a change of colour only.
var colourSequence = regexp.MustCompile("\x1b\\[[0-9;]{0,32}m")

// tame copies text from a guest line by line with all control characters
// escaped but the ones that only colour.
func tame(w io.Writer, r io.Reader, colour bool) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		text, err := in.ReadString('\n')
		if text != "" {
			if _, err := io.WriteString(w, tameLine(text, colour)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func tameLine(text string, colour bool) string {
	ending := ""
	if s, ok := strings.CutSuffix(text, "\n"); ok {
		text, ending = strings.TrimRight(s, "\r"), "\n"
	}
	var b strings.Builder
	painted := false
	rest := text
	for {
		at := colourSequence.FindStringIndex(rest)
		if at == nil {
			break
		}
		b.WriteString(clean(rest[:at[0]], true))
		if colour {
			b.WriteString(rest[at[0]:at[1]])
			painted = true
		}
		rest = rest[at[1]:]
	}
	b.WriteString(clean(rest, true))
	if painted {
		b.WriteString("\x1b[0m")
	}
	return b.String() + ending
}
