package logging

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Nine retries with one cause give one line. Another cause, another object, and
// the same cause an hour later are logged with the count.
func TestRepeatedCauseIsLoggedOnce(t *testing.T) {
	var b bytes.Buffer
	h := newOnceHandler(slog.NewTextHandler(&b, nil)).WithAttrs([]slog.Attr{slog.String("worker", "storage")})
	now := time.Date(2020, 1, 2, 12, 0, 0, 0, time.UTC)
	fail := func(object, cause string) {
		r := slog.NewRecord(now, slog.LevelWarn, "An operation on storage failed.", 0)
		r.AddAttrs(slog.String("object", object), slog.String("error", cause))
		if err := h.Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
	}
	lines := func() int { return strings.Count(b.String(), "\n") }
	for i := range 9 {
		fail("volume/data", fmt.Sprintf("cannot reach the mirror; retry %d of 10 in %ds", i, 1<<i))
	}
	fail("volume/raw", "cannot reach the mirror; retry 1 of 10 in 1s")
	if lines() != 2 {
		t.Errorf("nine retries of one cause and one of another object are %d lines:\n%s", lines(), b.String())
	}
	fail("volume/data", "no space left on device")
	if lines() != 3 || !strings.Contains(b.String(), "repeated-before=8") {
		t.Errorf("a new cause does not tell of the repeats before it:\n%s", b.String())
	}
	now = now.Add(repeatAfter)
	fail("volume/data", "no space left on device")
	if lines() != 4 {
		t.Errorf("an hour later the same cause is not told again:\n%s", b.String())
	}
}
