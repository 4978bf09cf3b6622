package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// fileHelp names the value as help shows it; pflag takes the word in
// backquotes.
const fileHelp = "a declaration: `FILE`, directory, or - for standard input; may be repeated"

// addFiles gives a command -f.
func addFiles(cmd *cobra.Command, files *[]string, help string) {
	cmd.Flags().StringArrayVarP(files, "file", "f", nil, help)
}

// addTimeout gives a command --timeout.
func addTimeout(cmd *cobra.Command, timeout *time.Duration, what string) {
	cmd.Flags().DurationVar(timeout, "timeout", 10*time.Minute, "how long "+what+": a `TIME` like 90s or 10m")
	cmd.Flags().Lookup("timeout").DefValue = duration(10 * time.Minute)
}

// addAllow gives a command --allow and its completion.
func addAllow(cmd *cobra.Command, allow *[]string, help string) {
	cmd.Flags().StringSliceVar(allow, "allow", nil, help+" this `IMPACT`: "+strings.Join(allowWords, ", ")+"; may be repeated")
	completeFlag(cmd, "allow", allowWords...)
}

// completeFlag completes the value of a flag with fixed words.
func completeFlag(cmd *cobra.Command, flag string, words ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// flagDefault is the default that is worth telling of a flag, "" for none.
func flagDefault(f *pflag.Flag) string {
	switch f.DefValue {
	case "false", "[]", "0s":
		return ""
	}
	return f.DefValue
}
