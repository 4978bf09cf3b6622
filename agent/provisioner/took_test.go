package provisioner

import (
	"testing"
	"time"

	"hostler/agent/spec"
)

// A start replaces the times of the earlier start and keeps those of the
// creation. Only the first readiness after a start counts.
func TestTimesOfAStart(t *testing.T) {
	made := &spec.Took{Image: 1, Turn: 2, Create: 3}
	first := bootTook(startTook(made, 4), 5, 2*time.Second)
	if want := (spec.Took{Image: 1, Turn: 2, Create: 3, Start: 4, Boot: 5, CloudInit: 2}); *first != want || first.Total() != 15 {
		t.Errorf("got %+v", *first)
	}
	if again := bootTook(first, 9, 9*time.Second); *again != *first {
		t.Errorf("a second look gives %+v", *again)
	}
	second := startTook(first, 0.5)
	if want := (spec.Took{Image: 1, Turn: 2, Create: 3, Start: 0.5}); *second != want {
		t.Errorf("a second start gives %+v", *second)
	}
	if ready := bootTook(second, 0, time.Hour); ready.Boot != 0.001 || ready.CloudInit != 0.001 {
		t.Errorf("a guest that claims an hour gives %+v", *ready)
	}
	if *first != (spec.Took{Image: 1, Turn: 2, Create: 3, Start: 4, Boot: 5, CloudInit: 2}) || *made != (spec.Took{Image: 1, Turn: 2, Create: 3}) {
		t.Errorf("earlier times changed: %+v, %+v", *made, *first)
	}
	if bootTook(nil, 1, 0) != nil {
		t.Error("an adopted machine has times")
	}
}
