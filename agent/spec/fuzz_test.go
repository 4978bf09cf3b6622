package spec

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func seed(f *testing.F, patterns ...string) {
	for _, p := range patterns {
		files, err := filepath.Glob(p)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			if len(content) < 8<<10 {
				f.Add(content)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	seed(f, "../../examples/*.yaml", "testdata/bad/*.yaml")
	f.Fuzz(func(t *testing.T, content []byte) {
		start := processorTime(t)
		d, err := Parse("fuzz", content)
		if took := processorTime(t) - start; took > slower*mostTime {
			t.Errorf("took %s", took)
		}
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a message")
			}
			return
		}
		again, err := Parse("again", EncodeYAML(d))
		if err != nil || !reflect.DeepEqual(d, again) {
			t.Errorf("%+v was read back as %+v, %v", d, again, err)
		}
		d.Objects()
	})
}

func FuzzParseConfig(f *testing.F) {
	seed(f, "testdata/bad-config/*.yaml")
	f.Add([]byte("namespace: a\nproxy: {http: http://proxy:3128}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		c, warnings, err := ParseConfig("fuzz", content)
		for _, w := range warnings {
			if w.Line == 0 || w.Message == "" {
				t.Errorf("a warning without a place: %+v", w)
			}
		}
		if err == nil && (c.Concurrency < 1 || c.Namespace == "") {
			t.Errorf("accepted %+v", c)
		}
	})
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"512MiB", "1GiB", "512", "1.5GiB", "-1MiB", "9223372036854775807B", "1 GiB", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSize(text)
		if err != nil {
			return
		}
		if again, err := ParseSize(s.String()); err != nil || again != s || s < 0 {
			t.Errorf("%q is %d, and %q is %d, %v", text, s, s.String(), again, err)
		}
	})
}
