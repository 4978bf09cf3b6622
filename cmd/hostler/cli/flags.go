package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// fileHelp is the help of -f. pflag shows the word in backquotes as the value's
// name.
const fileHelp = "a declaration: `FILE`, directory, or - for standard input; may be repeated"

// addFiles adds -f to a command.
func addFiles(cmd *cobra.Command, files *[]string, help string) {
	cmd.Flags().StringArrayVarP(files, "file", "f", nil, help)
}

// takesFiles accepts arguments as further files after -f, because a shell
// expands `-f conf.d/*.yaml` to -f and several words.
func takesFiles(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || cmd.Flags().Changed("file") {
		return nil
	}
	return usage("%s takes files after -f only, got %q", commandName(cmd), args[0]).hint("usage: " + cmd.UseLine())
}

// addTimeout adds --timeout to a command. what completes the help text "how
// long …".
func addTimeout(cmd *cobra.Command, timeout *time.Duration, what string) {
	cmd.Flags().DurationVar(timeout, "timeout", 10*time.Minute, "how long "+what+": a `TIME` like 90s or 10m")
	cmd.Flags().Lookup("timeout").DefValue = duration(10 * time.Minute)
}

// addAllow adds --allow and its completion to a command. help is the beginning
// of the help text.
func addAllow(cmd *cobra.Command, allow *[]string, help string) {
	cmd.Flags().StringSliceVar(allow, "allow", nil, help+" this `IMPACT`: "+strings.Join(allowWords, ", ")+"; may be repeated")
	completeFlag(cmd, "allow", allowWords...)
}

// completeFlag completes the value of a flag from fixed words.
func completeFlag(cmd *cobra.Command, flag string, words ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// flagDefault returns the default that the help shows for a flag, or "".
func flagDefault(f *pflag.Flag) string {
	switch f.DefValue {
	case "false", "[]", "0s":
		return ""
	}
	return f.DefValue
}
