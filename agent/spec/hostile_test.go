package spec

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The limits for parsing a document of the maximum size; see maxSize.
const (
	mostTime   = 2 * time.Second // processor time on a slow machine; typical is 50 ms
	mostMemory = 256 << 20       // allocated in total, not at the same time
)

// hostile returns expensive documents, cut to the maximum size.
func hostile() map[string]string {
	rep := func(s string) string { return strings.Repeat(s, maxSize/len(s)) }
	numbered := func(head, format string) string {
		var b strings.Builder
		b.WriteString(head)
		for i := 0; b.Len() < maxSize-200; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	return map[string]string{
		"open lists": rep("["), "open maps": rep("{a: "), "closed lists": rep("[")[:maxSize/2] + rep("]")[:maxSize/2],
		"flow list": "[" + rep("a,"), "flow maps": rep("{},"), "block list": rep("- a\n"), "nested list": rep("- "),
		"one key": rep("a: b\n"), "blank lines": "a: |\n" + rep("\n"), "comments": rep("# x\n"), "quote": "a: \"" + rep("x\n"),
		"quotes": rep("\"a"), "escapes": "a: \"" + rep("\\n"), "anchors": rep("&a "), "aliases": rep("- *a\n"),
		"documents": rep("---\n"), "tabs": rep("\t"), "question marks": rep("? "), "colons": rep(": "), "one line": rep("x"),
		"keys":          numbered("version: 1\n", "k%d: v\n"),
		"machines":      numbered("version: 1\nmachines:\n", " m%d: {}\n"),
		"good machines": numbered("version: 1\nmachines:\n", " m%d: {type: lxd, image: a/1}\n"),
		"bad names":     numbered("version: 1\nmachines:\n", " M%d:\n"),
		"networks":      numbered("version: 1\nnetworks:\n", " n%d: {bridge: b%[1]d, addresses: [10.0.0.1/8]}\n"),
		"bombs":         "a: &a [x]\n" + numbered("", "k%d: &k%[1]d [*a,*a,*a,*a]\n"),
		"nics":          "version: 1\nmachines:\n " + strings.Repeat("m", 120) + ":\n  networks:\n" + numbered("", "   n%d: {network: x}\n"),
		"long key":      "version: 1\nmachines:\n ? " + rep("m")[:maxSize/2] + "\n : networks:\n" + numbered("", "    n%d: {}\n")[:maxSize/4],
		"json keys":     numbered(`{"version":1`, `,"k%d":1`) + "}",
		"json lists":    `{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "}",
	}
}

// processorTime returns the processor time of this process including garbage
// collection: the cost of parsing, whatever the machine's load. No other test
// of this package runs at the same time.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// No document costs more than a bounded time and memory.
func TestHostileDocumentsAreCheap(t *testing.T) {
	for name, document := range hostile() {
		t.Run(name, func(t *testing.T) {
			document = document[:min(len(document), maxSize)]
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := processorTime(t)
			_, err := Parse("hostile", []byte(document))
			took := processorTime(t) - start
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; took > slower*mostTime || allocated > slower*mostMemory {
				t.Errorf("took %s and %d MiB", took, allocated>>20)
			}
			if err != nil && len(err.Error()) > 1<<20 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if testing.Verbose() {
				t.Logf("%s, %d MiB", took, (after.TotalAlloc-before.TotalAlloc)>>20)
			}
		})
	}
}

// A document that is too large is not parsed.
func TestTooLargeIsRefusedAtOnce(t *testing.T) {
	document := []byte(strings.Repeat("{a: ", 1<<18))
	allocated := testing.AllocsPerRun(5, func() {
		if _, err := Parse("large", document); err == nil {
			t.Fatal("accepted")
		}
	})
	if allocated > 100 {
		t.Errorf("%v allocations", allocated)
	}
}

// The remedy for a configuration that is too large is not that of a declaration.
func TestTooLargeConfiguration(t *testing.T) {
	_, _, err := ParseConfig("hostler.yaml", []byte(strings.Repeat("#", maxSize+1)))
	if want := "hostler.yaml: the file is 262145 bytes long, more than the 256 KiB allowed; shorten its comments and lists"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
