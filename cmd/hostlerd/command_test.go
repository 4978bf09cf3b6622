package main

import (
	"path/filepath"
	"testing"
)

func TestPathsAreAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	p, err := pathsOf("hostler.yaml", "state", "../run")
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		p.Config:   filepath.Join(dir, "hostler.yaml"),
		p.StateDir: filepath.Join(dir, "state"),
		p.RunDir:   filepath.Join(filepath.Dir(dir), "run"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
