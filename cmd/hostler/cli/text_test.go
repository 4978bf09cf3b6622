package cli

import (
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// Any text of a guest becomes a single line of valid text without characters
// that control a terminal.
func TestLineIsHarmless(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		in := string(rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(r, "bytes")) + rapid.String().Draw(r, "text")
		out := line(in)
		if !utf8.ValidString(out) {
			r.Fatalf("invalid text %q", out)
		}
		for _, c := range out {
			if hidden(c) {
				r.Fatalf("%q keeps %U", out, c)
			}
		}
		if strings.ContainsAny(out, "\n\r\t\x1b") {
			r.Fatalf("%q keeps a control character", out)
		}
	})
}

// A cut text never takes more columns than the limit.
func TestCutFits(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := line(rapid.String().Draw(r, "text"))
		limit := rapid.IntRange(1, 40).Draw(r, "limit")
		if got := cells(cut(s, limit)); got > limit {
			r.Fatalf("%d columns of %d", got, limit)
		}
	})
}

func TestCells(t *testing.T) {
	for s, want := range map[string]int{"": 0, "web": 3, "données": 7, "データ": 6, "e\u0301": 1, "🚀": 2} {
		if got := cells(s); got != want {
			t.Errorf("cells(%q) = %d, want %d", s, got, want)
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 192 * time.Second: "3m12s",
		30 * time.Minute: "30m", 5*time.Hour + 4*time.Minute: "5h4m", 20 * time.Hour: "20h", 12 * 24 * time.Hour: "12d",
	} {
		if got := short(d); got != want {
			t.Errorf("short(%s) = %s, want %s", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{10 * time.Minute: "10m", time.Hour: "1h", 90 * time.Second: "1m30s", 20 * time.Millisecond: "20ms"} {
		if got := duration(d); got != want {
			t.Errorf("duration(%d) = %s, want %s", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1536: "1.5KiB", 512 << 20: "512MiB", 4 << 40: "4TiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestClosest(t *testing.T) {
	known := []string{"machines", "volumes", "filesystems", "networks"}
	for word, want := range map[string]string{"machnies": "machines", "mach": "machines", "volume": "volumes", "netwroks": "networks", "zzz": ""} {
		got := strings.Join(closest(word, known, 1), "")
		if got != want {
			t.Errorf("closest(%q) = %q, want %q", word, got, want)
		}
	}
}

// Any text can be printed as YAML and read back.
func TestYAMLTakesAnyText(t *testing.T) {
	for _, r := range []rune{0x01, '\t', '\n', '\r', 0x7f, 0x80, 0x85, 0x9f, 0xa0, 0x2028, 0x202e, 0xfeff, 0xfffd, 0xfffe, 0xffff, 0xe0001, 0x1f600, 0x1ffff, 0x10ffff} {
		in := map[string]string{"message": "a" + string(r) + "b", "k" + string(r): "two\nlines" + string(r)}
		var b strings.Builder
		if err := writeYAML(&b, in); err != nil {
			t.Errorf("U+%04X: %v", r, err)
			continue
		}
		var out map[string]string
		if err := yaml.Unmarshal([]byte(b.String()), &out); err != nil || !maps.Equal(in, out) {
			t.Errorf("U+%04X: printed as %q, read back as %q, %v", r, b.String(), out, err)
		}
		if strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && hidden(r) }) {
			t.Errorf("U+%04X: not escaped in %q", r, b.String())
		}
	}
}
