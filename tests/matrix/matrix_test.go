package matrix_test

import (
	"path/filepath"
	"strings"
	"testing"

	"hostler/tests/matrix"
)

func TestTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cells")
	t.Setenv(matrix.Variable, path)
	for _, c := range []matrix.Cell{
		{Release: "a", Name: "install", Result: "pass"},
		{Release: "a", Name: "lxd", Result: "refused", Reason: "no package"},
		{Release: "b", Name: "install", Result: "FAILED"},
	} {
		if err := matrix.Record(c); err != nil {
			t.Fatal(err)
		}
	}
	cells, err := matrix.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := matrix.Print(&out, []string{"a", "b"}, cells); err != nil {
		t.Fatal(err)
	}
	want := "release  install  lxd\na        pass     refused\nb        FAILED   -\na lxd refused: no package\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
