package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const behaviours = "docs/behaviours.md"

var (
	// number is a behaviour's number in a comment.
	number = regexp.MustCompile(`\b[A-Z][0-9]{1,2}\b`)
	// named are the numbers with which the name of a sub-test begins.
	named = regexp.MustCompile(`^(?:[A-Z][0-9]{1,2},? )+`)
	// function is the number with which the name of a test function begins.
	function = regexp.MustCompile(`^Test([A-Z][0-9]{1,2})[A-Z]`)
	// row is a row of a table, with the number and the sentence.
	row = regexp.MustCompile(`^\| ([A-Z][0-9]{1,2}) \| ([A-Z\x60].*\.) \|$`)
	// family is the heading of a table.
	family = regexp.MustCompile(`^## ([A-Z]): `)
)

// Every number in a comment or in the name of a test has a row in the tables of
// behaviours, and every row has a test with its number.
func TestBehaviours(t *testing.T) {
	listed := rowsOfBehaviours(t)
	tested := map[string]bool{}
	for _, u := range numbersInUse(t) {
		if !slices.Contains(listed, u.number) {
			t.Errorf("%s: %s has no row in %s", u.position, u.number, behaviours)
		}
		tested[u.number] = tested[u.number] || u.test
	}
	for _, n := range listed {
		if !tested[n] {
			t.Errorf("%s: no test has the number %s; remove the row", behaviours, n)
		}
	}
}

// rowsOfBehaviours returns the numbers of the tables and checks that each table
// has the numbers of its family, in order.
func rowsOfBehaviours(t *testing.T) (listed []string) {
	t.Helper()
	letter, last := "", 0
	for i, line := range strings.Split(read(t, behaviours), "\n") {
		if heading := family.FindStringSubmatch(line); heading != nil {
			letter, last = heading[1], 0
		}
		if !strings.HasPrefix(line, "| ") || line == "| number | behaviour |" {
			continue
		}
		found := row.FindStringSubmatch(line)
		if found == nil {
			t.Errorf("%s:%d: not a number and a sentence: %s", behaviours, i+1, line)
			continue
		}
		n, err := strconv.Atoi(found[1][1:])
		if err != nil {
			t.Fatal(err)
		}
		if found[1][:1] != letter || n <= last {
			t.Errorf("%s:%d: %s is in another family's table or out of order", behaviours, i+1, found[1])
		}
		last = n
		listed = append(listed, found[1])
	}
	if len(listed) == 0 {
		t.Fatalf("%s has no rows", behaviours)
	}
	return listed
}

// use is one place where a number stands.
type use struct {
	number, position string
	// test reports whether the place is in the code of a test.
	test bool
}

// numbersInUse reads the comments of all Go files, whatever their build tags,
// and the names of tests and sub-tests.
func numbersInUse(t *testing.T) (uses []use) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || path != root && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		// Shared tests, e.g. storagetest, are in files of ordinary packages.
		test := strings.HasSuffix(path, "_test.go") || slices.ContainsFunc(file.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == `"testing"` })
		add := func(at token.Pos, numbers ...string) {
			for _, n := range numbers {
				uses = append(uses, use{n, files.Position(at).String(), test})
			}
		}
		for _, comment := range file.Comments {
			add(comment.Pos(), number.FindAllString(comment.Text(), -1)...)
		}
		if !test {
			return nil
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if found := function.FindStringSubmatch(n.Name.Name); found != nil {
					add(n.Pos(), found[1])
				}
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
					add(n.Pos(), number.FindAllString(named.FindString(text), -1)...)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return uses
}
