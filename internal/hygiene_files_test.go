//go:build !race

package internal_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the top of the clone, seen from this folder.
const root = ".."

// source is a parsed Go file of this module.
type source struct {
	name   string // slash-separated, from the top
	test   bool
	text   string
	syntax *ast.File
}

func (s source) folder() string { return path.Dir(s.name) }

func (s source) imports() (paths []string) {
	for _, i := range s.syntax.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		paths = append(paths, p)
	}
	return paths
}

// within reports whether pkg is dir or stands below it.
func within(pkg, dir string) bool { return pkg == dir || strings.HasPrefix(pkg, dir+"/") }

func contains(list []string, s string) bool { return slices.Contains(list, s) }

// tracked lists the files of the project as git sees them, new files included.
// In a copy without history it walks the folder.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	if out, err := cmd.Output(); err == nil {
		var names []string
		for name := range strings.FieldsSeq(string(out)) {
			if _, err := os.Lstat(filepath.Join(root, name)); err == nil && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names
	}
	return walk(t)
}

func walk(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, p)
		switch name {
		case ".git", ".cache", "bin", "dist", "vendor":
			if d.IsDir() {
				return filepath.SkipDir
			}
		}
		if !d.IsDir() {
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// sources parses every Go file of this module.
func sources(t *testing.T) (files []source) {
	t.Helper()
	for _, name := range tracked(t) {
		if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, b, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, source{name: name, test: strings.HasSuffix(name, "_test.go"), text: string(b), syntax: syntax})
	}
	if len(files) == 0 {
		t.Fatal("found no Go file: the rules were checked against nothing")
	}
	return files
}

func byFolder(files []source) map[string][]source {
	folders := map[string][]source{}
	for _, f := range files {
		folders[f.folder()] = append(folders[f.folder()], f)
	}
	return folders
}

func isText(b []byte) bool { return !bytes.Contains(b, []byte{0}) }
