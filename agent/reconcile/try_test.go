package reconcile

import "testing"

// A place is taken at once only where one is free.
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
