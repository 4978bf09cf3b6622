package oneline

import "testing"

// The last lines of a guest's console contain no blank lines and nothing that
// controls a terminal.
func TestLastLines(t *testing.T) {
	const text = "first\r\n\n  \x1b[31msecond\n\tthird\x00 \n\r\n"
	for n, want := range map[int]string{1: "third", 2: "[31msecond; third", 9: "first; [31msecond; third"} {
		if got := Last(Lines(text), n); got != want {
			t.Errorf("the last %d lines are %q, want %q", n, got, want)
		}
	}
	if got := Last(Lines("\n"), 3); got != "" {
		t.Errorf("the last lines of a blank text are %q", got)
	}
}
