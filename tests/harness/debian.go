package harness

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// KeepImages gives an agent that is not started yet the images that hostler
// built in an earlier test of this clone, and returns what keeps those it has
// in the end. They are built anew when the code of the builder changes.
func (a *Agent) KeepImages() (keep func()) {
	a.t.Helper()
	kept := filepath.Join(Root(a.t), ".cache", "hostler-images-"+builderKey(a.t))
	state := filepath.Join(a.Dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		a.t.Fatal(err)
	}
	if _, err := os.Stat(kept); err == nil {
		Run(a.t, "cp", "-a", kept, filepath.Join(state, "images"))
		return func() {}
	}
	return func() {
		a.t.Helper()
		// The name comes last: what bears it is whole.
		Run(a.t, "rm", "-rf", kept+".new")
		Run(a.t, "mkdir", "-p", filepath.Dir(kept))
		Run(a.t, "cp", "-a", filepath.Join(state, "images"), kept+".new")
		Run(a.t, "mv", "-T", kept+".new", kept)
	}
}

// builderKey tells the versions of the image builder apart.
func builderKey(t testing.TB) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(Root(t), "containerbroker", "images", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("cannot find the image builder: %v", err)
	}
	slices.Sort(files)
	sum := sha256.New()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:12]
}
