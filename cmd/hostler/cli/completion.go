package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/spec"
)

var shells = []string{"bash", "zsh", "fish"}

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "completion SHELL",
		Short:     "Print completion for bash, zsh or fish",
		Long:      "Print the completion script of a shell. Loading it for this shell, in bash:\n\n  source <(hostler completion bash)",
		Args:      takes(1, 1, "one SHELL: bash, zsh or fish"),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			root, w := cmd.Root(), a.env.Stdout
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(w, true)
			case "zsh":
				return root.GenZshCompletion(w)
			case "fish":
				return root.GenFishCompletion(w, true)
			}
			return usage("no completion for %q%s", args[0], didYouMean(args[0], shells)).hint("shells are bash, zsh, fish")
		},
	}
}

// completeTimeout bounds what a press of the tab key may take.
const completeTimeout = 500 * time.Millisecond

// completeNames asks the agent for the names of a kind; an agent that does
// not answer completes nothing.
func (a *app) completeNames(cmd *cobra.Command, kind string) []string {
	_ = a.prepare(cmd, nil)
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	l, err := list(ctx, a.agent(), kind)
	if err != nil {
		return nil
	}
	return l.names
}

func (a *app) completeMachines(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeNames(cmd, spec.KindMachine), cobra.ShellCompDirectiveNoFileComp
}

// completeMachine completes the first argument only.
func (a *app) completeMachine(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.completeMachines(cmd, args, word)
}

func (a *app) completeImages(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeNames(cmd, kindImage), cobra.ShellCompDirectiveNoFileComp
}

// completeReferences completes KIND/ first and then the names of the kind.
func (a *app) completeReferences(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	kindWord, _, named := strings.Cut(word, "/")
	if !named {
		var out []string
		for _, k := range getKinds {
			if k != kindImage {
				out = append(out, k+"/")
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	kind, err := parseKind(kindWord)
	if err != nil || kind == kindAll || kind == kindImage {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, n := range a.completeNames(cmd, kind) {
		out = append(out, kindWord+"/"+n)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completeGet(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		if strings.Contains(word, "/") {
			return a.completeReferences(cmd, args, word)
		}
		var out []string
		for _, k := range getKinds {
			out = append(out, plural(k))
		}
		return append(out, kindAll), cobra.ShellCompDirectiveNoFileComp
	}
	kind, err := parseKind(args[0])
	if err != nil || kind == kindAll {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeNames(cmd, kind), cobra.ShellCompDirectiveNoFileComp
}
