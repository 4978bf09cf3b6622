package strictyaml

import (
	"strings"
	"testing"
	"time"
)

type shape struct {
	Name  string            `yaml:"name"`
	Marks map[string]string `yaml:"marks"`
}

func TestUnmarshal(t *testing.T) {
	var got shape
	if err := Unmarshal([]byte("# a comment\nname: one\nmarks: {a: '!b', c: 12}\n"), &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "one" || got.Marks["a"] != "!b" || got.Marks["c"] != "12" {
		t.Errorf("got %+v", got)
	}
	if err := Unmarshal([]byte("# nothing\n"), &got); err != nil {
		t.Errorf("an empty document: %v", err)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, why string }{
		{"unknown key", "other: 1\n", "other"},
		{"repeated key", "name: a\nname: b\n", "already defined"},
		{"second document", "name: a\n---\nname: b\n", "more than one document"},
		{"anchor", "name: &a x\n", "anchor"},
		{"alias", "name: &a x\nmarks: {b: *a}\n", "anchor"},
		{"tag", "name: !!str x\n", "tag"},
		{"bare tag", "name: ! x\n", "tag"},
		{"merge key", "marks:\n  <<: {a: b}\n", "merge"},
		{"directive", "# c\n%YAML 1.1\n---\nname: a\n", "directive"},
		{"NUL", "name: a\x00\n", "UTF-8"},
		{"Latin-1", "name: \xe9\n", "UTF-8"},
		{"deep", "marks: " + strings.Repeat("[", 40) + strings.Repeat("]", 40), "deep"},
		{"large", "name: " + strings.Repeat("a", maxSize), "KiB"},
	} {
		if err := Unmarshal([]byte(c.text), &shape{}); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.why)
		}
	}
}

// A hostile document of the maximum size is as cheap as a large harmless
// document.
func TestHostileDocumentsAreCheap(t *testing.T) {
	for name, unit := range map[string]string{
		"lists": "[", "maps": "{", "entries": "- ", "keys": "? ", "pairs": "a: ", "quotes": `"`, "mixed": "[{", "anchors": "&a ",
		"a long line": "a,",
	} {
		start := time.Now()
		text := strings.Repeat(unit, (maxSize-2)/len(unit))
		if name == "a long line" {
			text = "[" + text + "]"
		}
		if err := Unmarshal([]byte(text), &shape{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}
