package figures

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFiguresAreRecordedAndCompared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures")
	t.Setenv(Variable, path)
	seconds := func(all ...float64) (d []time.Duration) {
		for _, s := range all {
			d = append(d, time.Duration(s*float64(time.Second)))
		}
		return d
	}
	before := []Figure{
		Ratio("apply of 24", seconds(2, 3, 4), seconds(4, 4, 4), 1),
		Bound("requests", 4, 6, "requests", "of ten"),
		Bound("writes", 0, 0, "writes", ""),
		Bound("gone", 1, 2, "calls", ""),
	}
	for _, f := range before {
		if err := Record(f); err != nil {
			t.Fatal(err)
		}
	}
	read, err := Read(path)
	if err != nil || len(read) != 4 || read[0].Ratio != 0.75 || read[0].Least != 0.5 || read[0].Most != 1 || !read[2].Met() {
		t.Fatalf("%+v, %v", read, err)
	}
	var text strings.Builder
	if err := Table(&text, read); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"apply of 24  3 s", "0.75", "0.50–1.00", "≤ 6 requests", "met"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
	text.Reset()
	Compare(&text, read, []Figure{
		Ratio("apply of 24", seconds(3, 3.6, 3), seconds(4, 4, 4), 1), // within the spread of before
		Bound("requests", 7, 6, "requests", ""),
		Bound("writes", 2, 0, "writes", ""),
	})
	want := "slower: requests: ratio 0.67 → 1.17 (4 → 7 requests)\nslower: writes: ratio 0.00 → 3.00 (0 → 2 writes)\nnot measured now: gone\n2 of 4 figures got slower\n"
	if text.String() != want {
		t.Errorf("compared:\n%s\nwant:\n%s", text.String(), want)
	}
}
