package kvm

import (
	"testing"
	"testing/synctest"
	"time"
)

// A value is remembered for recentTime after it was read, and old values do not
// pile up.
func TestRecentValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recent[int]
		want := func(name string, value int, known bool) {
			t.Helper()
			if got, ok := r.get(name); ok != known || known && got != value {
				t.Errorf("%s is %d, %v", name, got, ok)
			}
		}
		want("a", 0, false)
		r.clear()
		r.put("a", 1, time.Now())
		r.put("b", 2, time.Now().Add(-time.Second)) // read within a second
		time.Sleep(recentTime)
		want("a", 1, true)
		want("b", 0, false)
		time.Sleep(time.Nanosecond)
		want("a", 0, false)
		if _, ok := r.take("a"); ok {
			t.Error("an old value is taken")
		}
		r.put("c", 3, time.Now())
		if len(r.held) != 1 {
			t.Errorf("old values are held: %v", r.held)
		}
		r.clear()
		want("c", 0, false)
	})
}

// The value of one put is taken once, and later puts give a new one.
func TestRecentValueIsTakenOnce(t *testing.T) {
	var r recent[int]
	if _, ok := r.take("a"); ok {
		t.Error("taken before the first put")
	}
	for n := range 2 {
		r.put("a", n, time.Now())
		if got, ok := r.take("a"); !ok || got != n {
			t.Errorf("took %d, %v", got, ok)
		}
		if _, ok := r.take("a"); ok {
			t.Error("taken twice")
		}
	}
}
