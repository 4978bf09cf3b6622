//go:build !race

package internal_test

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// typeTables are the files that may name a container type, besides its driver
// and initialiser. Package images uses the word lxd for a form of image files
// and for the references to images in LXD's own store.
var typeTables = []string{
	"agent/spec/types.go", "agent/drivers.go", "containerbroker/images/images.go", "containerbroker/images/ref.go",
}

var (
	typeWord   = regexp.MustCompile(`^(lxd|incus|kvm|lxc)(:|$)`)
	typeSymbol = regexp.MustCompile(`^(LXD|Incus|KVM|LXC)$`)
	typeFolder = regexp.MustCompile(`^(hostler/)?(containerbroker|initialisers|internal)/(lxd|kvm|lxc)(/|$)`)
	// testSupport matches packages that only tests use.
	testSupport = regexp.MustCompile(`^tests/|test/`)
)

// Only the tables, a type's driver and its initialiser name a container type.
func TestContainerTypesAreNamedInTables(t *testing.T) {
	found := map[string]bool{}
	for _, f := range sources(t) {
		if f.test || testSupport.MatchString(f.name) || typeFolder.MatchString(path.Dir(f.name)) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			text := ""
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if typeSymbol.MatchString(n.Sel.Name) {
					text = n.Sel.Name
				}
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && (typeWord.MatchString(s) || typeFolder.MatchString(s)) {
					text = s
				}
			}
			switch {
			case text == "":
			case slices.Contains(typeTables, f.name):
				found[f.name] = true
			default:
				t.Errorf("%s names a container type (%s): use a field of spec.TypeInfo, or of the constructors in agent/drivers.go", f.name, strings.TrimSpace(text))
			}
			return true
		})
	}
	for _, name := range typeTables {
		if !found[name] {
			t.Errorf("%s names no container type any more", name)
		}
	}
}
