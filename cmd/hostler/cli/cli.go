// Package cli is the hostler command. It parses the command line, sends
// requests to the agent and prints the answers.
package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler/internal/fault"
	"hostler/internal/version"
)

// defaultSocket is the agent's socket if neither --socket nor HOSTLER_SOCKET is
// set.
const defaultSocket = "/run/hostler/hostler.sock"

// env holds the parts of the process that the commands use.
type env struct {
	Args   []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Getenv func(string) string
	Now    func() time.Time
	Term   terminal
	// Run runs a program and returns its standard output.
	Run func(ctx context.Context, path string, args ...string) (string, error)
	// Root is the root of the host's files; empty means /.
	Root string
	// Dial returns a client of the agent behind a socket. The client connects at
	// its first use.
	Dial func(socket string, log *slog.Logger) agent
}

// app is a run of the command.
type app struct {
	env    env
	log    *slog.Logger
	socket string
	output string
	quiet  bool
	debug  bool
}

// execute carries out one command line and returns its exit code.
func execute(ctx context.Context, env env) int {
	a := &app{env: env, log: slog.New(slog.DiscardHandler)}
	root := a.root()
	// Pass a slice that is not nil, because otherwise cobra would read the
	// arguments of the process.
	root.SetArgs(append([]string{}, env.Args...))
	began := env.Now()
	err := root.ExecuteContext(ctx)
	a.log.Debug("the command ended", "took", env.Now().Sub(began), "kind", string(fault.KindOf(err)))
	if err == nil {
		return exitOK
	}
	f := explain(ctx, err)
	if f.text != "" {
		fmt.Fprintf(env.Stderr, "hostler: %s\n", clean(strings.TrimRight(f.text, "\n"), true))
	}
	if f.mend != "" {
		fmt.Fprintf(env.Stderr, "  %s\n", clean(f.mend, true))
	}
	return f.code
}

func (a *app) root() *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:               "hostler",
		Short:             "Run the declared machines of this host",
		Long:              "hostler talks to the agent of this host, hostlerd: declare machines in YAML, apply\nthem, and look at their status.",
		Example:           "  hostler doctor\n  hostler plan -f web.yaml\n  hostler apply -f web.yaml --wait\n  hostler get machines\n  hostler show machine/web\n  hostler exec web -- bash",
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		Args:              cobra.ArbitraryArgs,
		PersistentPreRunE: a.prepare,
		RunE: func(cmd *cobra.Command, args []string) error {
			if showVersion {
				fmt.Fprintf(a.env.Stdout, "hostler %s\n", version.Version)
				return nil
			}
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	root.SetOut(a.env.Stdout)
	root.SetErr(a.env.Stderr)
	root.SetIn(a.env.Stdin)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	p := root.PersistentFlags()
	p.StringVar(&a.socket, "socket", "", "the agent's socket, a `PATH` (HOSTLER_SOCKET; default "+defaultSocket+")")
	p.StringVarP(&a.output, "output", "o", "", "print in this `FORMAT`: table, wide, json, yaml, csv or name, where the command has it")
	p.BoolVarP(&a.quiet, "quiet", "q", false, "print only the result and errors")
	p.BoolVar(&a.debug, "debug", false, "log each step to standard error")
	_ = root.RegisterFlagCompletionFunc("output", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return strings.Fields(cmd.Annotations[outputs]), cobra.ShellCompDirectiveNoFileComp
	})
	// cobra's own version flag uses a template, which would add 1.7 MB to the
	// binary, because with text/template the linker keeps every exported method.
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "version for hostler")
	root.AddGroup(groups()...)
	for _, c := range a.commands() {
		root.AddCommand(c)
	}
	root.SetHelpCommand(helpCommand(root))
	return root
}

// prepare applies the global flags before any command runs.
func (a *app) prepare(cmd *cobra.Command, _ []string) error {
	a.socket = cmp.Or(a.socket, a.env.Getenv("HOSTLER_SOCKET"), defaultSocket)
	if a.debug {
		a.log = slog.New(slog.NewTextHandler(a.env.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return a.checkOutput(cmd)
}

// agent returns the agent behind the chosen socket.
func (a *app) agent() agent { return a.env.Dial(a.socket, a.log) }

// colours returns true for a terminal, unless NO_COLOR is set or TERM is dumb.
func (a *app) colours() colours {
	return colours(a.env.Term.Output() && a.env.Getenv("NO_COLOR") == "" && a.env.Getenv("TERM") != "dumb")
}

// note prints a remark, unless -q is set.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.env.Stdout, format+"\n", args...)
	}
}

// helpCommand is `hostler help [COMMAND]`.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		GroupID: groupMore,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usage("unknown command %q", strings.Join(args, " ")).hint("`hostler --help` lists the commands")
			}
			return cmd.Help()
		},
	}
}
