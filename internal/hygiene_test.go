//go:build !race

// Package internal_test checks rules of the project that no linter checks.
package internal_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const longest = 350 // lines of a file that is not a test

// Every package has exactly one package comment.
func TestOnePackageDoc(t *testing.T) {
	for dir, files := range byFolder(sources(t)) {
		var docs []string
		code := false
		for _, f := range files {
			if f.test {
				continue
			}
			code = true
			if f.syntax.Doc != nil {
				docs = append(docs, f.name)
				if text := f.syntax.Doc.Text(); !strings.HasPrefix(text, "Package "+f.syntax.Name.Name+" ") && !strings.HasPrefix(text, "Command "+path.Base(dir)+" ") {
					t.Errorf("%s: the package doc starts neither with %q nor with %q", f.name, "Package "+f.syntax.Name.Name, "Command "+path.Base(dir))
				}
			}
		}
		if code && len(docs) != 1 {
			t.Errorf("%s has %d package docs, want one: %v", dir, len(docs), docs)
		}
	}
}

// Files are short, without exceptions.
func TestFilesAreShort(t *testing.T) {
	for _, f := range sources(t) {
		if lines := strings.Count(f.text, "\n"); !f.test && lines > longest {
			t.Errorf("%s has %d lines, more than %d: split it by role", f.name, lines, longest)
		}
	}
}

// A main.go only calls the package beside it.
func TestMainIsShort(t *testing.T) {
	for _, f := range sources(t) {
		if lines := strings.Count(f.text, "\n"); strings.HasPrefix(f.name, "cmd/") && path.Base(f.name) == "main.go" && lines > 30 {
			t.Errorf("%s has %d lines, more than 30", f.name, lines)
		}
	}
}

var (
	// The bracketed letters keep this file from finding itself.
	unwanted = regexp.MustCompile(`(?i)(^|[^\w.])/(wor[k]|far[m])/|\bthis sessio[n]\b|\bprevious sessio[n]\b|\bissue #?[0-9]+\b|acceptance poin[t]|before-sto[p]|(^|\s)#[0-9]+\b`)
	// Marks of unfinished work; upper case only, since "todo" may be text.
	unfinished = regexp.MustCompile(`\b(TOD[O]|FIXM[E]|XX[X])\b`)
	skipping   = regexp.MustCompile(`\bt\.Ski[p](f|Now)?\(`)
)

// The project's files do not mention how or where it was made.
func TestWords(t *testing.T) {
	for _, name := range tracked(t) {
		if name == "go.sum" || strings.HasSuffix(name, "/go.sum") || name == "LICENSE" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || !isText(b) {
			continue
		}
		for i, line := range strings.Split(string(b), "\n") {
			for what, expr := range map[string]*regexp.Regexp{"does not belong in the project": unwanted, "is unfinished": unfinished, "skips a test": skipping} {
				if found := expr.FindString(line); found != "" && !strings.HasPrefix(name, "testdata/") {
					t.Errorf("%s:%d: %q %s", name, i+1, strings.TrimSpace(found), what)
				}
			}
		}
	}
}

var (
	pathWord       = regexp.MustCompile(`[A-Za-z0-9_.*/-]+\.(go|md)\b`)
	folderWord     = regexp.MustCompile(`\b(cmd|agent|containerbroker|initialisers|packaging|sysctl|internal|docs|examples|tests|debian)/[A-Za-z0-9_./-]*[A-Za-z0-9_]`)
	imageReference = regexp.MustCompile(`^debian/[0-9]+$`)
	markdownLink   = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
)

// Files named in comments and documents exist.
func TestNamedFilesExist(t *testing.T) {
	all := tracked(t)
	known := map[string]bool{}
	for _, name := range all {
		known[path.Base(name)] = true
		for ; name != "."; name = path.Dir(name) {
			known[name] = true
		}
	}
	check := func(where, named string) {
		named = strings.TrimPrefix(named, "./")
		if strings.ContainsAny(named, "*") || strings.HasPrefix(named, "/") || strings.HasPrefix(named, "-") || imageReference.MatchString(named) {
			return
		}
		if !known[named] && !known[path.Join(path.Dir(where), named)] {
			t.Errorf("%s names %s, which is not there", where, named)
		}
	}
	for _, f := range sources(t) {
		for _, group := range f.syntax.Comments {
			for _, word := range pathWord.FindAllString(group.Text(), -1) {
				check(f.name, word)
			}
		}
	}
	for _, name := range all {
		if path.Ext(name) != ".md" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // deleted, not yet committed
		}
		text := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(b), "")
		for _, expr := range []*regexp.Regexp{pathWord, folderWord} {
			for _, code := range regexp.MustCompile("`[^`\n]+`").FindAllString(text, -1) {
				for _, word := range expr.FindAllString(code, -1) {
					check(name, word)
				}
			}
		}
		for _, link := range markdownLink.FindAllStringSubmatch(text, -1) {
			check(name, link[1])
		}
	}
}

// Generated and built files are not in the repository.
func TestNoBuiltFilesInTheRepository(t *testing.T) {
	for _, name := range tracked(t) {
		if first, _, _ := strings.Cut(name, "/"); slices.Contains([]string{"bin", "dist", "vendor", ".cache"}, first) {
			t.Errorf("%s is kept", name)
		}
	}
}
