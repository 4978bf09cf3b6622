package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
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
	var system, summary bool
	var config string
	cmd := &cobra.Command{
		Use:   "validate -f FILE... | --system",
		Short: "Check declarations without an agent",
		Long: "Check declarations, several files together, without an agent: for editors, commit hooks and\n" +
			"CI. It checks the text only; `hostler plan` also looks at the host.\n" +
			"With --system, check the files that the agent of this host reads: hostler.yaml and conf.d.\n" +
			"They may refer to objects that `hostler apply` declared.\n" +
			"Exit code 0: all are valid; 1: at least one is not.",
		Example: "  hostler validate -f web.yaml\n  hostler validate -f conf/*.yaml -f extra.yaml\n  sudo hostler validate --system",
		Args:    takesFiles,
		RunE: func(cmd *cobra.Command, more []string) error {
			files = append(files, more...)
			text := error.Error
			if summary {
				text = spec.Summary
			}
			switch {
			case system && len(files) > 0:
				return usage("--system checks the files of the agent, and takes no -f")
			case !system && cmd.Flags().Changed("config"):
				return usage("--config needs --system")
			case system:
				return a.validateSystem(cmd.Context(), config, text)
			}
			return a.validateFiles(cmd.Context(), files, text, false)
		},
	}
	addFiles(cmd, &files, fileHelp)
	cmd.Flags().BoolVar(&system, "system", false, "check hostler.yaml and conf.d of this host")
	cmd.Flags().BoolVar(&summary, "summary", false, "print a line for each mistake, without the text of the file, which may hold passwords")
	cmd.Flags().StringVar(&config, "config", systemConfig, "the `FILE` that --system checks; conf.d stands beside it")
	return cmd
}

// systemConfig is the configuration file of the host's agent.
const systemConfig = "/etc/hostler/hostler.yaml"

// validateFiles checks the documents that -f names. text formats a mistake. If
// open is true, a reference to an object that no document declares is a remark,
// since the agent may have the object from `hostler apply`.
func (a *app) validateFiles(ctx context.Context, files []string, text func(error) string, open bool) error {
	docs, from, err := readDocuments(ctx, files, a.env.Stdin)
	if err != nil {
		errs := []error{err}
		_, _, wrong := readAlone(docs, text)
		for _, w := range wrong {
			errs = append(errs, from.name(fault.New(fault.Invalid, "%s", w)))
		}
		return together(ctx, errs)
	}
	declared, err := checkDocuments(docs, from, text, documents.Request{Open: open})
	if err != nil {
		return from.name(err)
	}
	if _, err := checkDocuments(docs, from, spec.Summary, documents.Request{Together: true}); err != nil {
		for missing := range strings.Lines(from.name(err).Error()) {
			a.remark("warning: " + strings.TrimSpace(missing) + "; it is no mistake if `hostler apply` declared it")
		}
	}
	for i, d := range docs {
		a.note("%s: valid, declaration %s of %s", line(from[d.Name]), declared[i].Name, count(len(declared[i].Objects()), "object"))
	}
	return nil
}

// validateSystem checks a configuration file and the declarations of the conf.d
// beside it. The error lists the mistakes of both.
func (a *app) validateSystem(ctx context.Context, config string, text func(error) string) error {
	var wrong []error
	if err := a.validateConfig(config, text); err != nil {
		wrong = append(wrong, err)
	}
	dir := filepath.Join(filepath.Dir(config), "conf.d")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		a.note("%s: absent, no declarations", dir)
		return together(ctx, wrong)
	} else if err != nil {
		return together(ctx, append(wrong, fileError(dir, err)))
	}
	var files []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch info, err := os.Stat(path); {
		case !isDeclaration(e.Name()):
		case err == nil && !info.Mode().IsRegular(): // the agent refuses it, because a read of a pipe would block
			wrong = append(wrong, notAFile(path))
		default:
			files = append(files, path)
		}
	}
	if len(files) > 0 {
		if err := a.validateFiles(ctx, files, text, true); err != nil {
			wrong = append(wrong, err)
		}
	} else if len(wrong) == 0 {
		a.note("%s: no declarations", dir)
	}
	return together(ctx, wrong)
}

// validateConfig checks a configuration file. Keys that the agent does not know
// are remarks, since the agent ignores them.
func (a *app) validateConfig(path string, text func(error) string) error {
	content, err := readConfig(path)
	if errors.Is(err, fs.ErrNotExist) {
		a.note("%s: absent; a new agent begins with the defaults, others keep their last configuration", path)
		return nil
	}
	if err != nil {
		return fileError(path, err)
	}
	_, warnings, err := spec.ParseConfig(path, content)
	if err != nil {
		return fault.New(fault.Invalid, "%s", text(err))
	}
	for _, w := range warnings {
		a.remark("warning: " + w.Summary())
	}
	a.note("%s: valid", path)
	return nil
}

// checkDocuments checks the text of all documents together and returns the
// declarations in the same order. The error lists the mistakes of all
// documents, each formatted by text. r says how the documents are checked. A
// document that cannot be read may declare what others refer to.
func checkDocuments(docs []client.Document, places places, text func(error) string, r documents.Request) ([]spec.Declaration, error) {
	all, lines, wrong := readAlone(docs, text)
	r.Wanted, r.Open = map[string]documents.Document{}, r.Open || len(wrong) > 0
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
		wrong = append(wrong, text(m.Refused[name]))
	}
	if len(wrong) > 0 {
		return nil, fault.New(fault.Invalid, "%s", strings.Join(wrong, "\n"))
	}
	return all, nil
}

// readAlone parses each document by itself. For a document that it cannot
// parse, it returns an empty declaration and an error text in wrong.
func readAlone(docs []client.Document, text func(error) string) (all []spec.Declaration, lines []map[string]int, wrong []string) {
	for _, d := range docs {
		decl, at, err := spec.ParseAlone(d.Name, []byte(d.Content))
		if err != nil {
			wrong = append(wrong, text(err))
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
	_, _, wrong := readAlone(req.Documents, error.Error)
	if len(wrong) == 0 {
		return err
	}
	invalid := fault.New(fault.Invalid, "%s", strings.Join(wrong, "\n"))
	return fail(exitError, "%s", from.name(invalid)).hint(strings.ReplaceAll(err.Error(), "\n", " "))
}
