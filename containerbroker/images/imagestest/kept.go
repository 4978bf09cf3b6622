// Package imagestest keeps images that hostler built in one test, so that later
// tests of the same repository can use them.
package imagestest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"hostler/internal/run"
)

// Use copies the kept images into dir, the folder of an image cache that is not
// opened yet. If there were no kept images, the returned function keeps the
// images of dir. Kept images are no longer used after a change of the image
// builder.
func Use(t testing.TB, dir string) (keep func()) {
	t.Helper()
	kept := folder(t)
	if _, err := os.Stat(kept); err != nil {
		return func() { t.Helper(); Keep(t, dir) }
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	command(t, "/bin/cp", "-a", kept, dir)
	return func() {}
}

// Keep keeps the images of dir, the folder of an image cache, unless there are
// kept images already.
func Keep(t testing.TB, dir string) {
	t.Helper()
	kept := folder(t)
	if _, err := os.Stat(kept); err == nil {
		return
	}
	// The folder gets its final name last, so that a folder of that name is
	// complete.
	command(t, "/bin/rm", "-rf", kept+".new")
	command(t, "/bin/mkdir", "-p", filepath.Dir(kept))
	command(t, "/bin/cp", "-a", dir, kept+".new")
	command(t, "/bin/rm", "-rf", kept+".new/debs")
	command(t, "/bin/mv", "-T", kept+".new", kept)
}

// folder returns the path of the kept images, which depends on the source code
// of the image builder.
func folder(t testing.TB) string {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == "/" {
			t.Fatal("cannot find the top folder of the clone")
		}
		root = filepath.Dir(root)
	}
	files, err := filepath.Glob(filepath.Join(root, "containerbroker", "images", "*.go"))
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
	return filepath.Join(root, ".cache", "hostler-images-"+fmt.Sprintf("%x", sum.Sum(nil))[:12])
}

func command(t testing.TB, path string, args ...string) {
	t.Helper()
	if _, err := (run.Host{}).Run(context.Background(), run.Command{Path: path, Args: args, Timeout: time.Minute}); err != nil {
		t.Fatalf("%s %v: %v", path, args, err)
	}
}
