package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// internalCommand holds the commands for packaging.
func (a *app) internalCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "internal", Short: "Names of generated files for packaging", Hidden: true, Args: cobra.ArbitraryArgs, RunE: onlyCommands}
	cmd.AddCommand(&cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Args:  takes(1, 1, "one DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeManual(cmd.Root(), args[0])
		},
	}, &cobra.Command{
		Use:   "commands",
		Short: "Print docs/commands.md",
		Args:  takes(0, 0, ""),
		RunE:  func(cmd *cobra.Command, _ []string) error { return writeReference(a.env.Stdout, cmd.Root()) },
	}, a.bootWaitCommand())
	return cmd
}

// documented prepares the commands for documentation, without the line that
// cobra generates with the date.
func documented(root *cobra.Command) *cobra.Command {
	root.DisableAutoGenTag = true
	root.InitDefaultHelpFlag()
	return root
}

const referenceHead = `# Commands

Written from the commands themselves by ` + "`hostler internal commands`" + `; a test keeps it so.

Every command takes the global flags:

`

const referenceExit = `
Exit codes: 0 done, 1 error. Others are named with their command. A command that was interrupted
exits with 130. Errors and progress go to standard error, results to standard output.
[json.md](json.md) describes the JSON output.
`

// writeReference writes all commands as a Markdown document.
func writeReference(w io.Writer, root *cobra.Command) error {
	var b strings.Builder
	b.WriteString(referenceHead)
	writeFlags(&b, root.PersistentFlags())
	b.WriteString(referenceExit)
	for _, g := range root.Groups() {
		fmt.Fprintf(&b, "\n## %s\n", strings.TrimSuffix(g.Title, ":"))
		for _, c := range root.Commands() {
			if c.GroupID == g.ID && c.IsAvailableCommand() && c.Name() != "help" {
				writeCommand(&b, c)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeCommand(b *strings.Builder, c *cobra.Command) {
	if c.HasAvailableSubCommands() {
		for _, s := range c.Commands() {
			writeCommand(b, s)
		}
		return
	}
	fmt.Fprintf(b, "\n### %s\n\n    %s\n\n", c.CommandPath(), c.UseLine())
	text := cmp.Or(c.Long, c.Short+".")
	b.WriteString(text + "\n")
	if formats := strings.Fields(c.Annotations[outputs]); len(formats) > 0 {
		fmt.Fprintf(b, "\nPrints as %s.\n", strings.Join(formats, ", "))
	}
	if flags := c.NonInheritedFlags(); flags.HasAvailableFlags() {
		b.WriteString("\n")
		writeFlags(b, flags)
	}
	if c.Example != "" {
		b.WriteString("\nExamples:\n\n")
		for l := range strings.Lines(c.Example) {
			b.WriteString("  " + strings.TrimRight(l, "\n") + "\n")
		}
	}
}

func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | meaning |\n|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		value, meaning := pflag.UnquoteUsage(f)
		if value != "" {
			name += " " + value
		}
		if def := flagDefault(f); def != "" {
			meaning += " (default " + def + ")"
		}
		fmt.Fprintf(b, "| %s | %s |\n", name, strings.ReplaceAll(meaning, "|", `\|`))
	})
}
