package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
)

type deleteFlags struct {
	files   []string
	wait    bool
	timeout time.Duration
}

func (a *app) deleteCommand() *cobra.Command {
	var f deleteFlags
	cmd := prints(&cobra.Command{
		Use:   "delete KIND/NAME... | -f FILE",
		Short: "Remove declared objects",
		Long: "Remove objects, or whole declarations: `delete -f FILE` removes the declaration that\n" +
			"applying the file made. An object that others refer to is removed only together with them.\n" +
			"The harvest mode and the machine's `retain:` decide whether its instance is deleted.",
		Example: "  hostler delete machine/web volume/data --wait\n  hostler delete declaration/web\n  hostler delete -f web.yaml",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.delete(cmd.Context(), args, f)
		},
		ValidArgsFunction: a.completeReferences,
	}, outTable, outName)
	addFiles(cmd, &f.files, "a declaration to remove: `FILE`, directory or -")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until it is removed")
	addTimeout(cmd, &f.timeout, "--wait waits")
	return cmd
}

func (a *app) delete(ctx context.Context, args []string, f deleteFlags) error {
	refs, err := a.deleted(ctx, args, f)
	if err != nil {
		return err
	}
	agent := a.agent()
	var doomed map[reference][]reference
	if f.wait {
		if doomed, err = behind(ctx, agent, refs); err != nil {
			return err
		}
	}
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = r.String()
	}
	outcomes, err := agent.Delete(ctx, names)
	if err != nil {
		return err
	}
	refused := a.outcomes(ctx, agent, refs, outcomes, f.wait)
	if !f.wait {
		return refused
	}
	var g goals
	var removed []string
	for i, o := range outcomes {
		if o.Err() != nil {
			continue
		}
		removed = append(removed, names[i])
		g.gone = append(g.gone, doomed[refs[i]]...)
	}
	if err := a.waitFor(ctx, agent, g, f.timeout, exitError); err != nil {
		if refused != nil {
			return together(ctx, []error{refused, err})
		}
		return err
	}
	if a.output != outName && len(removed) > 0 {
		a.note("removed %s", strings.Join(removed, ", "))
	}
	return refused
}

// deleted returns the objects that the arguments or the files name.
func (a *app) deleted(ctx context.Context, args []string, f deleteFlags) ([]reference, error) {
	switch {
	case f.timeout <= 0:
		return nil, usage("--timeout must be positive, got %s", f.timeout)
	case len(args) == 0 && len(f.files) == 0:
		return nil, usage("delete needs a KIND/NAME or -f FILE").hint("like `hostler delete machine/web`")
	case len(args) > 0 && len(f.files) > 0:
		return nil, usage("delete takes KIND/NAME or -f FILE, not both")
	case len(args) > 0:
		for _, s := range args {
			if strings.HasPrefix(s, "image/") {
				return nil, usage("images are not declared").hint("`hostler image delete REFERENCE` removes a single image")
			}
		}
		return parseReferences(args)
	}
	docs, files, err := readDocuments(ctx, f.files, a.env.Stdin)
	if err != nil {
		return nil, err
	}
	var refs []reference
	for _, d := range docs {
		name, err := declarationName(d)
		if err != nil {
			return nil, files.name(err)
		}
		refs = append(refs, reference{spec.KindDeclaration, name})
	}
	return refs, nil
}

// outcomes prints the result for each object of a bulk delete. It returns the
// failures as one error, or nil.
func (a *app) outcomes(ctx context.Context, agent agent, refs []reference, outcomes []client.Outcome, wait bool) error {
	var broken []error
	for i, o := range outcomes {
		if err := o.Err(); err != nil {
			broken = append(broken, near(ctx, agent, refs[i], err))
			continue
		}
		switch {
		case a.output == outName:
			fmt.Fprintln(a.env.Stdout, line(o.Object))
		case !wait:
			a.note("%s is being removed", line(o.Object))
		}
	}
	return together(ctx, broken)
}

// behind returns for each reference the objects that its deletion removes.
// These are the object itself, or all objects of a declaration.
func behind(ctx context.Context, agent agent, refs []reference) (map[reference][]reference, error) {
	all := map[reference][]reference{}
	var declarations []client.Declaration
	for _, r := range refs {
		switch r.kind {
		case spec.KindMachine, spec.KindNetwork, spec.KindVolume, spec.KindFilesystem:
			all[r] = []reference{r}
		case spec.KindDeclaration:
			if declarations == nil {
				var err error
				if declarations, err = agent.Declarations(ctx); err != nil {
					return nil, err
				}
			}
			i := slices.IndexFunc(declarations, func(d client.Declaration) bool { return d.Name == r.name })
			if i >= 0 {
				all[r] = referencesOf(declarations[i].Objects)
			}
		}
	}
	return all, nil
}
