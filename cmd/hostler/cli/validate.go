package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/internal/fault"
)

func (a *app) validateCommand() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "validate -f FILE...",
		Short: "Check declarations without an agent",
		Long: "Check declarations, several files together, without an agent: for editors, commit hooks and\n" +
			"CI. It checks the text only; `hostler plan` also looks at the host.\n" +
			"Exit code 0: all are valid; 1: at least one is not.",
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

// checkDocuments checks the text of all documents together and returns the
// declarations in the same order. The error lists the mistakes of all
// documents.
func checkDocuments(docs []client.Document, places places) ([]spec.Declaration, error) {
	all, lines, wrong := readAlone(docs)
	r := documents.Request{Wanted: map[string]documents.Document{}}
	from := map[string]string{}
	for i, decl := range all {
		d := docs[i]
		switch other, twice := from[decl.Name]; {
		case decl.Version == 0: // it could not be read
		case twice:
			wrong = append(wrong, fmt.Sprintf("%s and %s are both the declaration %q; give either another `name:`", other, places[d.Name], decl.Name))
		default:
			from[decl.Name] = places[d.Name]
			r.Wanted[decl.Name] = documents.Document{
				Name: decl.Name, Place: d.Name, From: places[d.Name], Declaration: decl, Text: []byte(d.Content), Lines: lines[i], Rank: documents.Applied,
			}
		}
	}
	m := documents.Merge(r)
	for _, name := range slices.Sorted(maps.Keys(m.Refused)) {
		wrong = append(wrong, m.Refused[name].Error())
	}
	if len(wrong) > 0 {
		return nil, fault.New(fault.Invalid, "%s", strings.Join(wrong, "\n"))
	}
	return all, nil
}

// readAlone parses each document by itself. For a document that it cannot
// parse, it returns an empty declaration and an error text in wrong.
func readAlone(docs []client.Document) (all []spec.Declaration, lines []map[string]int, wrong []string) {
	for _, d := range docs {
		decl, at, err := spec.ParseAlone(d.Name, []byte(d.Content))
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		all, lines = append(all, decl), append(lines, at)
	}
	return all, lines, wrong
}

// unanswered explains an error of a request. If no agent could be reached and
// the documents have mistakes, it returns the mistakes, with the error of the
// connection as the hint. Other errors keep their text.
func (a *app) unanswered(ctx context.Context, req client.ApplyRequest, from places, err error) error {
	if ctx.Err() != nil || !errors.Is(err, client.ErrNotRunning) && !errors.Is(err, fs.ErrPermission) {
		return from.name(err)
	}
	_, _, wrong := readAlone(req.Documents)
	if len(wrong) == 0 {
		return err
	}
	invalid := fault.New(fault.Invalid, "%s", strings.Join(wrong, "\n"))
	return fail(exitError, "%s", from.name(invalid)).hint(strings.ReplaceAll(err.Error(), "\n", " "))
}
