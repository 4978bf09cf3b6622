package harness

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Package returns the Debian package of this clone; suffix is added to its
// version. It is built once for each state of the clone's files.
func Package(t testing.TB, suffix string) (file string) {
	t.Helper()
	cache := filepath.Join(Root(t), ".cache", "packages")
	kept := filepath.Join(cache, sources(t))
	file = filepath.Join(kept, "hostler"+suffix+".deb")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	// Packages of other states are of no use anymore.
	others, _ := filepath.Glob(filepath.Join(cache, "*"))
	for _, other := range others {
		if other != kept {
			Run(t, "rm", "-rf", other)
		}
	}
	Run(t, "mkdir", "-p", kept)
	Run(t, "mv", BuildPackage(t, suffix), file)
	return file
}

// BuildPackage builds the Debian package of this clone.
func BuildPackage(t testing.TB, suffix string) (file string) {
	t.Helper()
	dir := t.TempDir()
	Run(t, filepath.Join(Root(t), "debian/build"), dir, suffix)
	debs, err := filepath.Glob(filepath.Join(dir, "hostler_*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("built %v, %v; want one package", debs, err)
	}
	return debs[0]
}

// sources returns a digest of the files that debian/build packs.
func sources(t testing.TB) string {
	t.Helper()
	root := Root(t)
	list, err := Try(nil, "git", "-C", root, "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	if err != nil { // a copy without its .git
		list = Run(t, "find", root, "-path", root+"/.cache", "-prune", "-o", "-path", root+"/bin", "-prune", "-o", "-path", root+"/dist", "-prune", "-o", "-type", "f", "-printf", `%P\0`)
	}
	sum := sha256.New()
	for name := range strings.SplitSeq(list, "\x00") {
		path := filepath.Join(root, name)
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted, or the end of the list
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(sum, "%s %o %d\n%s\n", name, info.Mode().Perm(), len(text), text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:16]
}
