package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"hostler/agent/client"
)

func (a *app) logsCommand() *cobra.Command {
	o := client.LogOptions{}
	cmd := &cobra.Command{
		Use:   "logs MACHINE",
		Short: "Print a machine's console log",
		Long:  "Print a machine's console log. On a terminal control characters are escaped, colours kept;\nelsewhere it is printed unchanged. The agent keeps the last MiB of it.\nConsoles may show passwords: they are for root and the group hostler-admin, and for the group\nhostler where hostler.yaml has api: {readers-see-consoles: true}.",
		Args:  takes(1, 1, "one MACHINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, err := parseMachine(args[0])
			if err != nil {
				return err
			}
			return a.logs(cmd.Context(), machine, o)
		},
		ValidArgsFunction: a.completeMachine,
	}
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "go on with new output until interrupted")
	cmd.Flags().IntVar(&o.Tail, "tail", -1, "begin with the last `N` lines; -1: all")
	return cmd
}

func (a *app) logs(ctx context.Context, machine string, o client.LogOptions) error {
	agent := a.agent()
	r, err := agent.Logs(ctx, machine, o)
	if err != nil {
		return near(ctx, agent, machineNamed(machine), err)
	}
	defer r.Close()
	in := bufio.NewReaderSize(r, 64<<10)
	if _, err := in.Peek(1); errors.Is(err, io.EOF) && o.Tail != 0 {
		if !a.quiet {
			fmt.Fprintf(a.env.Stderr, "%s has written nothing to its console yet\n", machine)
		}
		return nil
	}
	if a.env.Term.Output() {
		err = tame(a.env.Stdout, in, bool(a.colours()))
	} else {
		_, err = io.Copy(a.env.Stdout, in)
	}
	if o.Follow && ctx.Err() != nil {
		return nil // an interrupt is the normal end of --follow
	}
	return err
}

// colourSequence matches the escape sequences that change only colours.
var colourSequence = regexp.MustCompile("\x1b\\[[0-9;]{0,32}m")

// tame copies text from a guest line by line. It escapes all control characters
// except those that only set colours.
func tame(w io.Writer, in *bufio.Reader, colour bool) error {
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
