package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

// maxDocument is the maximum size of one document in bytes.
const maxDocument = 256 << 10

// stdinName names standard input. No file has this stem and a valid declaration.
const stdinName = spec.StandardInput

// readDocuments reads the documents that -f names. These are files, the *.yaml,
// *.yml and *.json of directories, and - for standard input. The agent parses
// the documents and reports errors with their lines.
//
// A read of a terminal or a FIFO, or the open of a FIFO, blocks until another
// process writes. So when ctx ends, readDocuments returns at once, and the read
// ends with the process.
func readDocuments(ctx context.Context, paths []string, stdin io.Reader) ([]client.Document, places, error) {
	type answer struct {
		docs []client.Document
		from places
		err  error
	}
	read := make(chan answer, 1)
	go func() {
		docs, from, err := readPaths(ctx, paths, stdin)
		read <- answer{docs, from, err}
	}()
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case a := <-read:
		return a.docs, a.from, a.err
	}
}

// reading collects the documents of -f, and an error for each file that cannot
// be read.
type reading struct {
	docs  []client.Document
	from  []string // the path of each document, for messages
	seen  map[string]bool
	wrong []error
}

// readPaths reads the documents. With an error, it returns the documents that it
// could read.
func readPaths(ctx context.Context, paths []string, stdin io.Reader) ([]client.Document, places, error) {
	if len(paths) == 0 {
		return nil, nil, usage("no file is given").hint("name one with -f FILE, a directory with -f DIR, or read standard input with -f -")
	}
	r := &reading{seen: map[string]bool{}}
	for _, p := range paths {
		info, err := os.Stat(p)
		switch {
		case p == "-" || p == "/dev/stdin":
			r.add(stdinName, stdinName, "", func() ([]byte, error) { return readStdin(stdin) })
		case err == nil && info.IsDir():
			files, err := listDir(p)
			if err != nil {
				r.wrong = append(r.wrong, err)
			}
			for _, f := range files {
				r.file(f)
			}
		default:
			r.file(p)
		}
	}
	if err := nameByPath(r.docs, r.from); err != nil {
		return nil, nil, together(ctx, append(r.wrong, err))
	}
	where := places{}
	for i, d := range r.docs {
		where[d.Name] = r.from[i]
	}
	return r.docs, where, together(ctx, r.wrong)
}

func (r *reading) file(path string) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		r.wrong = append(r.wrong, fileError(path, err))
		return
	}
	r.add(stem(path), path, absolute, func() ([]byte, error) { return readFile(path) })
}

// add adds a document, unless it was added before, e.g. by -f DIR -f DIR/FILE.
func (r *reading) add(name, from, absolute string, read func() ([]byte, error)) {
	if r.seen[absolute] {
		return
	}
	r.seen[absolute] = true
	content, err := read()
	if err == nil && !utf8.Valid(content) {
		_, _, invalid := spec.ParseAlone(from, content)
		first, _, _ := strings.Cut(spec.Summary(invalid), "\n")
		err = usage("%s", first)
	}
	if err != nil {
		r.wrong = append(r.wrong, err)
		return
	}
	r.docs, r.from = append(r.docs, client.Document{Name: name, Path: absolute, Content: string(content)}), append(r.from, from)
}

// nameByPath renames documents with the same stem, e.g. a/web.yaml and
// b/web.yaml, to their paths, so that the agent's messages name the right
// document. Each of these documents then needs its own `name:`.
func nameByPath(docs []client.Document, from []string) error {
	stems := map[string]int{}
	for _, d := range docs {
		stems[d.Name]++
	}
	taken := map[string]string{}
	for i, d := range docs {
		if stems[d.Name] == 1 {
			continue
		}
		// Ignore a document that cannot be parsed, because the agent reports its
		// error.
		if name, err := declarationName(d); err == nil {
			if other, dup := taken[name]; dup {
				return usage("%s and %s would both be declaration %q", other, from[i], name).
					hint("rename either file, or give it another `name:`")
			}
			taken[name] = from[i]
		}
		docs[i].Name = from[i]
	}
	return nil
}

// foldersOf returns the absolute paths of the folders among the paths of -f.
func foldersOf(paths []string) (folders []string, err error) {
	for _, p := range paths {
		if info, err := os.Stat(p); p == "-" || err != nil || !info.IsDir() {
			continue // readDocuments reports a missing file
		}
		absolute, err := filepath.Abs(p)
		if err != nil {
			return nil, fileError(p, err)
		}
		folders = append(folders, absolute)
	}
	return folders, nil
}

// places maps the names of documents to the paths from which they were read.
type places map[string]string

// name replaces names of documents by paths of files in an error of the agent,
// because the agent knows only the names. It replaces the NAME of
// NAME:LINE:COLUMN at the start of a line, after a space or after a bracket.
func (p places) name(err error) error {
	if fault.KindOf(err) != fault.Invalid || len(p) == 0 {
		return err
	}
	names := slices.SortedFunc(maps.Keys(p), func(a, b string) int { return len(b) - len(a) })
	for i, n := range names {
		names[i] = regexp.QuoteMeta(n)
	}
	place := regexp.MustCompile(`(?m)(^|[ (])(` + strings.Join(names, "|") + `):(\d+:\d+)`)
	return fault.New(fault.Invalid, "%s", place.ReplaceAllStringFunc(err.Error(), func(s string) string {
		m := place.FindStringSubmatch(s)
		return m[1] + p[m[2]] + ":" + m[3]
	}))
}

// checkTogether returns an error if the documents exceed the maximum size of a
// request.
func checkTogether(docs []client.Document) error {
	var sent bytes.Buffer
	e := json.NewEncoder(&sent)
	e.SetEscapeHTML(false)
	if err := e.Encode(docs); err != nil || sent.Len() <= client.MaxDocuments {
		return err
	}
	return usage("%s make a request of %s, and a request has at most %s", count(len(docs), "file"), size(int64(sent.Len())), size(client.MaxDocuments)).
		hint("apply them in parts, some files at a time: declarations stay in force when others are applied")
}

func stem(path string) string {
	base := filepath.Base(path)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

func isDeclaration(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".")
	}
	return false
}

func listDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fileError(dir, err)
	}
	var out []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch info, err := os.Stat(path); {
		case !isDeclaration(e.Name()) || e.IsDir():
		case err == nil && !info.Mode().IsRegular(): // a read of a pipe would block
			return nil, notAFile(path)
		default:
			out = append(out, path)
		}
	}
	if len(out) == 0 {
		return nil, usage("there is no *.yaml, *.yml or *.json in %s", dir)
	}
	return out, nil
}

func notAFile(path string) error {
	return usage("%s: it is not a file; remove it, or give it a name without this ending", path)
}

// readConfig reads a configuration file. It does not open a pipe, which would wait for a
// writer.
func readConfig(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("it is a pipe, not a file")}
	}
	return os.ReadFile(path) //nolint:gosec // the user or the host names the file
}

func readFile(path string) ([]byte, error) {
	if path == "" {
		return nil, usage("-f got an empty name; name a file, a directory, or - for standard input")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	defer f.Close()
	content, err := limited(f, path)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(string(content)) == "" {
		return nil, usage("%s is empty; begin it with \"version: 1\", or remove the file", path)
	}
	return content, nil
}

func readStdin(stdin io.Reader) ([]byte, error) {
	content, err := limited(stdin, stdinName)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(string(content)) == "" {
		return nil, usage("standard input is empty; pipe a declaration into `-f -`")
	}
	return content, nil
}

// limited reads content of at most maxDocument bytes. For longer content it
// returns an error with name and the limit.
func limited(r io.Reader, name string) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return nil, fileError(name, err)
	}
	if len(content) > maxDocument {
		return nil, usage("%s is larger than the %s a declaration may have; split it into several declarations", name, size(maxDocument))
	}
	return content, nil
}

func fileError(path string, err error) error {
	cause := err
	var pe *fs.PathError
	if errors.As(err, &pe) {
		cause = pe.Err
	}
	target, unlinked := os.Readlink(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && unlinked == nil:
		return usage("%s is a link to %s, which does not exist; mend or remove the link", path, target)
	case errors.Is(err, fs.ErrNotExist):
		return usage("there is no file %s", path)
	case errors.Is(err, fs.ErrPermission):
		return usage("cannot read %s: permission denied", path)
	}
	return usage("%s", fmt.Sprintf("cannot read %s: %v", path, cause))
}
