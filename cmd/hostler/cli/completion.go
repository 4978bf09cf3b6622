package cli

import (
	"context"
	"slices"
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
		Long:      "Print the completion script of a shell. The Debian package installs\nall three, so that new shells have it. For this shell:\n\n  bash  source <(hostler completion bash)\n  zsh   source <(hostler completion zsh)\n  fish  hostler completion fish | source",
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

// completeTimeout limits the time that a press of the tab key may take.
const completeTimeout = 500 * time.Millisecond

// completeNames asks the agent for the names of a kind. If the agent does not
// answer, there are no completions.
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

// completeImages lists each image name once, even if several stores keep the
// image.
func (a *app) completeImages(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	names := a.completeNames(cmd, kindImage)
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// completeVolume completes the first argument only.
func (a *app) completeVolume(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeNames(cmd, spec.KindVolume), cobra.ShellCompDirectiveNoFileComp
}

// completeTypes completes the container type before the slash. It does not
// complete the instance after the slash.
func completeTypes(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, t := range containerTypes {
		if len(args) == 0 && !strings.Contains(word, "/") {
			out = append(out, t+"/")
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeShown completes the arguments of show: objects, images and container
// types.
func (a *app) completeShown(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if kind, _, named := strings.Cut(word, "/"); named && kind == kindImage {
		names, directive := a.completeImages(cmd, args, word)
		return prefixed(kindImage, names), directive
	}
	out, directive := a.completeTried(cmd, args, word)
	if !strings.Contains(word, "/") {
		out = append(out, kindImage+"/")
	}
	return out, directive
}

// completeTried completes the arguments of retry: objects and container types.
func (a *app) completeTried(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch kind, _, named := strings.Cut(word, "/"); {
	case !named:
		out, directive := a.completeReferences(cmd, args, word)
		return append(out, spec.KindContainerType+"/"), directive
	case kind == spec.KindContainerType:
		return prefixed(kind, containerTypes), cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeReferences(cmd, args, word)
}

func prefixed(kind string, names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = kind + "/" + n
	}
	return out
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
	return prefixed(kindWord, a.completeNames(cmd, kind)), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completeGet(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		if strings.Contains(word, "/") {
			return a.completeReferences(cmd, args, word)
		}
		var out []string
		for _, k := range append(slices.Clone(getKinds), kindAttachment, kindBlockDevice) {
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
