package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"hostler/agent/spec"
)

// getKinds is the order of the kinds in `get all`.
var getKinds = []string{spec.KindMachine, spec.KindVolume, spec.KindFilesystem, spec.KindNetwork, kindImage, spec.KindDeclaration}

func (a *app) getCommand() *cobra.Command {
	var watch bool
	cmd := prints(&cobra.Command{
		Use:   "get [KIND] [NAME...]",
		Short: "List machines, volumes, filesystems, networks, images, declarations or all",
		Long: "List the objects of a kind (machines by default), or only the named objects.\n" +
			"Kinds: machines (m), volumes (vol), filesystems (fs), attachments (att), block-devices (bd),\n" +
			"networks (net), images (img), declarations (decl), all. Exit code 3: a named object\n" +
			"does not exist.",
		Example: "  hostler get machines\n  hostler get machines web db -o json\n  hostler get machines -w\n  hostler get all -w",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, names, err := getArgs(args)
			if err != nil {
				return err
			}
			if watch {
				return a.getWatch(cmd.Context(), kind, names)
			}
			return a.get(cmd.Context(), kind, names)
		},
		ValidArgsFunction: a.completeGet,
	}, outTable, outWide, outJSON, outYAML, outCSV, outName)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on and print changes")
	return cmd
}

// getArgs parses arguments of the form KIND NAME… or KIND/NAME….
func getArgs(args []string) (string, []string, error) {
	if len(args) == 0 {
		return spec.KindMachine, nil, nil
	}
	if !strings.Contains(args[0], "/") {
		kind, err := parseKind(args[0])
		if err != nil {
			return "", nil, err
		}
		if kind == kindAll && len(args) > 1 {
			return "", nil, usage("get all takes no names, got %q", args[1])
		}
		return kind, args[1:], nil
	}
	var kind string
	var names []string
	for _, s := range args {
		word, name, ok := strings.Cut(s, "/")
		k, err := parseKind(word)
		switch {
		case !ok || name == "" || k == kindAll:
			return "", nil, usage("%q is not KIND/NAME", s)
		case err != nil:
			return "", nil, err
		case kind != "" && k != kind:
			return "", nil, usage("get lists one kind at a time, got %s and %s", plural(kind), plural(k))
		}
		kind, names = k, append(names, name)
	}
	return kind, names, nil
}

func (a *app) get(ctx context.Context, kind string, names []string) error {
	if kind == kindAll {
		return a.getAll(ctx)
	}
	l, err := list(ctx, a.agent(), kind)
	if err != nil {
		return err
	}
	a.notices(l.notices)
	keep, missing := l.find(names)
	if err := a.printListing(l, keep, len(missing) == 0); err != nil {
		return err
	}
	if len(missing) > 0 {
		return l.absent(missing)
	}
	return nil
}

// printListing prints rows in the chosen format. If there are no rows, it
// prints an empty array as JSON or YAML, and a note (if tellEmpty is set)
// instead of a table.
func (a *app) printListing(l *listing, keep []int, tellEmpty bool) error {
	switch a.output {
	case outJSON, outYAML:
		return a.document(l.data(keep))
	case outCSV:
		return l.csv(keep).writeCSV(a.env.Stdout)
	case outName:
		for _, i := range keep {
			fmt.Fprintf(a.env.Stdout, "%s/%s\n", l.kind, line(l.names[i]))
		}
		return nil
	}
	if len(keep) == 0 {
		if tellEmpty && !a.quiet {
			fmt.Fprintf(a.env.Stderr, "no %s\n", plural(l.kind))
		}
		return nil
	}
	return a.rows(l.view(keep, a.env.Now(), a.output == outWide))
}

func (a *app) getAll(ctx context.Context) error {
	if a.output == outCSV {
		return usage("get all cannot print as csv: its kinds have different columns").hint("ask for one kind: hostler get machines -o csv")
	}
	agent := a.agent()
	all := map[string]any{}
	printed := 0
	for _, kind := range getKinds {
		l, err := list(ctx, agent, kind)
		if err != nil {
			return err
		}
		a.notices(l.notices)
		keep, _ := l.find(nil)
		switch a.output {
		case outJSON, outYAML:
			all[plural(kind)] = l.data(keep)
			continue
		case outTable, outWide:
			if len(keep) == 0 {
				continue
			}
			if printed > 0 {
				fmt.Fprintln(a.env.Stdout)
			}
			fmt.Fprintln(a.env.Stdout, a.colours().bold(strings.ToUpper(plural(kind))))
		}
		if err := a.printListing(l, keep, false); err != nil {
			return err
		}
		printed += len(keep)
	}
	if a.output == outJSON || a.output == outYAML {
		return a.document(all)
	}
	if printed == 0 && !a.quiet && a.output != outName {
		fmt.Fprintln(a.env.Stderr, "no objects are declared")
	}
	return nil
}
