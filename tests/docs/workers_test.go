package docs_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/agent"
)

var update = flag.Bool("update", false, "write the generated parts of the documents anew")

const begin, end = "<!-- workers:begin -->\n", "<!-- workers:end -->"

// The table of workers in docs/ARCHITECTURE.md is the list in the code.
func TestWorkers(t *testing.T) {
	const page = "docs/ARCHITECTURE.md"
	text := read(t, page)
	before, rest, ok := strings.Cut(text, begin)
	shown, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the workers", page)
	}
	var table strings.Builder
	table.WriteString("| worker | reads | writes | purpose |\n|---|---|---|---|\n")
	for _, w := range agent.Workers() {
		if w.Name == "" || w.In == "" || w.Out == "" || w.Doc == "" {
			t.Errorf("the worker %+v says too little of itself", w)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", w.Name, w.In, w.Out, w.Doc)
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, page), []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if shown != table.String() {
		t.Errorf("the table in %s is not the list in the code; run `go test ./tests/docs -update`", page)
	}
}
