package reconcile

import (
	"errors"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/internal/fault"
)

// F22: a due time within the longest delay is waited for; a due time recorded
// by a clock that ran a year ahead is due.
func TestF22DueTimesOfAClockThatRanAheadAreDue(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for off, want := range map[time.Duration]bool{
		-time.Second: false, 0: false, time.Nanosecond: true, time.Minute: true,
		time.Minute + time.Nanosecond: false, 365 * 24 * time.Hour: false,
	} {
		if got := Pending(now.Add(off), now, time.Minute); got != want {
			t.Errorf("due in %s: pending %v", off, got)
		}
	}
}

// A failure with a retry opens the gate at the retry's time, a failure without
// any not at all.
func TestGate(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	var a spec.Attempts
	if open, after := Gate(a, now, time.Hour); !open || !after.IsZero() {
		t.Errorf("without a failure: %v %v", open, after)
	}
	delays := Backoff{Base: time.Minute, Max: time.Hour}
	for _, want := range []time.Duration{time.Minute, 2 * time.Minute} {
		Failed(&a, fault.Transient, now, delays.After)
		if open, after := Gate(a, now, time.Hour); !open || after != now.Add(want) {
			t.Errorf("attempt %d: %v %v", a.Count, open, after)
		}
	}
	if open, after := Gate(a, now.Add(time.Hour), time.Hour); !open || !after.IsZero() {
		t.Errorf("later: %v %v", open, after)
	}
	Failed(&a, fault.Invalid, now, nil)
	if open, _ := Gate(a, now, time.Hour); open || a.Count != 3 || a.ErrorKind != string(fault.Invalid) {
		t.Errorf("without a retry: %v %+v", open, a)
	}
}

// A failure delays only its own key, and only the generation that failed.
func TestFailures(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	f, delays := Failures{}, Backoff{Base: time.Second, Max: time.Minute}
	cause := errors.New("no")
	f.Add("a", 1, cause, now, delays.After)
	if again := f.Add("a", 1, cause, now, delays.After); again.Count != 2 || !errors.Is(again.Err, cause) {
		t.Errorf("%+v", again)
	}
	if until := f.Until("a", 1, now); until != now.Add(2*time.Second) {
		t.Errorf("until %v", until)
	}
	if !f.Until("a", 2, now).IsZero() || !f.Until("b", 1, now).IsZero() || !f.Until("a", 1, now.Add(2*time.Second)).IsZero() {
		t.Error("delays another generation, another key or too long")
	}
}

// A pass takes every key once.
func TestNudges(t *testing.T) {
	var n Nudges
	if keys := n.Take(); keys == nil || len(keys) != 0 {
		t.Errorf("at first %v", keys)
	}
	n.Add("a")
	n.Add("a")
	if keys := n.Take(); len(keys) != 1 || !keys["a"] || len(n.Take()) != 0 {
		t.Errorf("%v", keys)
	}
}
