package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"hostler/agent/api"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

func (a *app) validateCommand() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "validate -f FILE...",
		Short: "Check declarations without an agent",
		Long: "Check declarations, several files together, without an agent: for editors, commit hooks and\n" +
			"CI. Everything that can be seen in the text is checked; `hostler plan` looks at the host, too.\n" +
			"Exit code 0 says that all are valid, 1 that one is not.",
		Example: "  hostler validate -f web.yaml\n  hostler validate -f conf/ -f extra.yaml",
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			docs, from, err := readDocuments(files, a.env.Stdin)
			if err != nil {
				return err
			}
			declared, err := checkDocuments(docs, from)
			if err != nil {
				return from.name(err)
			}
			for i, d := range docs {
				a.note("%s: valid, declaration %s of %s", line(from[d.Name]), declared[i].Name, count(len(declared[i].Objects()), "object"))
			}
			return nil
		},
	}
	addFiles(cmd, &files, fileHelp)
	return cmd
}

// checkDocuments checks documents as far as their text goes, and returns the
// declarations in the same order. The error tells everything that is wrong.
func checkDocuments(docs []api.Document, places places) ([]spec.Declaration, error) {
	var all []spec.Declaration
	var wrong []string
	from, named := map[string]string{}, map[string]spec.Declaration{}
	for _, d := range docs {
		decl, err := spec.Parse(d.Name, []byte(d.Content))
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		all = append(all, decl)
		if other, twice := from[decl.Name]; twice {
			wrong = append(wrong, fmt.Sprintf("%s and %s are both the declaration %q; give one of them another `name:`", other, places[d.Name], decl.Name))
			continue
		}
		from[decl.Name], named[decl.Name] = places[d.Name], decl
	}
	for _, c := range spec.Conflicts(named) {
		wrong = append(wrong, c.Message)
	}
	if len(wrong) > 0 {
		return nil, fault.New(fault.Invalid, "%s", strings.Join(wrong, "\n"))
	}
	return all, nil
}

// unanswered tells what is wrong with the documents where no agent could.
func (a *app) unanswered(ctx context.Context, req api.ApplyRequest, from places, err error) error {
	if ctx.Err() != nil || !errors.Is(err, api.ErrNotRunning) && !errors.Is(err, fs.ErrPermission) {
		return from.name(err)
	}
	_, invalid := checkDocuments(req.Documents, from)
	if invalid == nil {
		return err
	}
	return fail(exitError, "%s", from.name(invalid)).hint(strings.ReplaceAll(err.Error(), "\n", " "))
}
