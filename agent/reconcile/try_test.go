package reconcile

import "testing"

// TryAcquire takes a place only if one is free.
func TestTryAcquire(t *testing.T) {
	l := NewLimiter(1)
	if !l.TryAcquire() || l.TryAcquire() {
		t.Error("one place was not given exactly once")
	}
	l.Release()
	if !l.TryAcquire() {
		t.Error("a place that was given back is not free")
	}
}
