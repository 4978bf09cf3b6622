package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"hostler/agent/client"
)

func (a *app) execCommand() *cobra.Command {
	var force, never bool
	var env []string
	cmd := &cobra.Command{
		Use:   "exec MACHINE -- CMD...",
		Short: "Run a command in a machine",
		Long: "Run a command in a machine and exit with its exit code. Standard input, output and error\n" +
			"are the command's; with a terminal on both ends it gets one. 1 is also the exit code when\n" +
			"the command could not be run.",
		Example: "  hostler exec web -- bash\n  hostler exec web -- tar -c /srv | tar -x",
		Args:    takes(2, -1, "a MACHINE and a command after --"),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, err := parseMachine(args[0])
			switch {
			case err != nil:
				return err
			case cmd.ArgsLenAtDash() > 1:
				return usage("exec takes one MACHINE before --, got %q too", args[1])
			case force && never:
				return usage("-t and -T exclude each other")
			}
			vars, err := environment(env)
			if err != nil {
				return err
			}
			terminal := force || !never && a.env.Term.Input() && a.env.Term.Output()
			return a.exec(cmd.Context(), machine, client.ExecOptions{Command: args[1:], Env: vars, Terminal: terminal})
		},
		ValidArgsFunction: a.completeMachine,
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); len(args) > 1 {
			return usage("%s", flagError(cmd, err)).hint("put -- before the command: hostler exec " + args[0] + " -- " + args[1] + " ...")
		}
		return flagError(cmd, err)
	})
	cmd.Flags().BoolVarP(&force, "terminal", "t", false, "give the command a terminal even without a terminal here")
	cmd.Flags().BoolVarP(&never, "no-terminal", "T", false, "give the command no terminal")
	cmd.Flags().StringArrayVar(&env, "env", nil, "set `NAME=VALUE` for the command; may be repeated")
	return cmd
}

func environment(pairs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, usage("--env takes NAME=VALUE, got %q", p)
		}
		out[name] = value
	}
	return out, nil
}

func (a *app) exec(ctx context.Context, machine string, o client.ExecOptions) error {
	o.Stdin, o.Stdout, o.Stderr = a.env.Stdin, a.env.Stdout, a.env.Stderr
	if o.Terminal {
		if word := a.env.Getenv("TERM"); word != "" && o.Env["TERM"] == "" {
			o.Env["TERM"] = word
		}
		o.Width, o.Height = a.env.Term.Size()
		limited, cancel := context.WithCancel(ctx)
		defer cancel()
		o.Resize = a.env.Term.Resized(limited)
		restore, err := a.env.Term.Raw()
		if err != nil {
			return fmt.Errorf("cannot switch the terminal to raw mode: %w", err)
		}
		defer restore()
	}
	agent := a.agent()
	code, err := agent.Exec(ctx, machine, o)
	switch {
	case err != nil:
		return near(ctx, agent, machineNamed(machine), err)
	case code != 0:
		return silent(code)
	}
	return nil
}

func (a *app) consoleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "console MACHINE",
		Short: "Attach to a machine's console; Ctrl+] leaves it",
		Args:  takes(1, 1, "one MACHINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, err := parseMachine(args[0])
			if err != nil {
				return err
			}
			if !a.env.Term.Input() {
				return usage("console needs a terminal").hint("`hostler exec MACHINE -- CMD` runs a command, `hostler logs` prints the console's log")
			}
			return a.console(cmd.Context(), machine)
		},
		ValidArgsFunction: a.completeMachine,
	}
}

func (a *app) console(ctx context.Context, machine string) error {
	if !a.quiet {
		fmt.Fprintf(a.env.Stderr, "console of %s; Ctrl+] leaves it\n", machine)
	}
	restore, err := a.env.Term.Raw()
	if err != nil {
		return fmt.Errorf("cannot switch the terminal to raw mode: %w", err)
	}
	defer restore()
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	keys := &leaver{r: a.env.Stdin, leave: cancel}
	agent := a.agent()
	err = agent.Console(limited, machine, struct {
		io.Reader
		io.Writer
	}{keys, a.env.Stdout})
	if limited.Err() != nil && ctx.Err() == nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return near(ctx, agent, machineNamed(machine), err)
}

// leaveKey is Ctrl+].
const leaveKey = 0x1d

// leaver passes on the keys that are read from r. At leaveKey it calls leave
// and ends.
type leaver struct {
	r     io.Reader
	leave func()
	left  bool
}

func (l *leaver) Read(p []byte) (int, error) {
	if l.left {
		return 0, io.EOF
	}
	n, err := l.r.Read(p)
	for i := range n {
		if p[i] == leaveKey {
			l.left = true
			l.leave()
			return i, nil
		}
	}
	return n, err
}
