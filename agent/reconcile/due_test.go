package reconcile

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// S19: immediately, then 30 s doubling to 30 min. Keys with the same delay are
// due together, because now is read once.
func TestScheduleDoublesToItsCap(t *testing.T) {
	b := Backoff{Base: 30 * time.Second, Max: 30 * time.Minute}
	now := time.Unix(0, 0)
	var h Heap[string]
	h.Set("volume/a", now)
	if got := h.Due(now); !slices.Equal(got, []string{"volume/a"}) {
		t.Fatalf("the first attempt: %v", got)
	}
	for attempt, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 30 * time.Minute, 30 * time.Minute} {
		if got := b.Next(attempt+1, nil); got != want {
			t.Errorf("attempt %d: %v, want %v", attempt+1, got, want)
		}
		h.Set("volume/a", now.Add(want))
		h.Set("volume/b", now.Add(want))
		if got := h.Due(now.Add(want - 1)); got != nil {
			t.Errorf("too early: %v", got)
		}
		now = now.Add(want)
		if got := h.Due(now); !slices.Equal(got, []string{"volume/a", "volume/b"}) {
			t.Errorf("due: %v", got)
		}
	}
}

func TestBackoffWithoutBound(t *testing.T) {
	b := Backoff{Base: time.Second, Max: math.MaxInt64}
	for _, attempt := range []int{1, 60, 64, 1000, math.MaxInt} {
		if got := b.Next(attempt, nil); got <= 0 {
			t.Errorf("attempt %d: %v", attempt, got)
		}
	}
}

// Z19: a key that is set twice has its new time, and nothing panics.
func TestSettingAKeyTwiceReplacesIt(t *testing.T) {
	var h Heap[string]
	h.Remove("nothing")
	if _, _, ok := h.Next(); ok {
		t.Error("an empty heap has a next")
	}
	at := time.Unix(100, 0)
	h.Set("a", at)
	h.Set("b", at.Add(time.Second))
	h.Set("a", at.Add(time.Minute))
	if key, when, ok := h.Next(); key != "b" || !when.Equal(at.Add(time.Second)) || !ok {
		t.Errorf("next %v at %v", key, when)
	}
	h.Set("a", at.Add(-time.Minute))
	if got := h.Due(at.Add(time.Hour)); !slices.Equal(got, []string{"a", "b"}) || h.Len() != 0 {
		t.Errorf("due %v, %d left", got, h.Len())
	}
}

// The heap agrees with a map that is sorted each time.
func TestHeapModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var h Heap[int]
		model := map[int]int64{}
		rt.Repeat(map[string]func(*rapid.T){
			"set": func(rt *rapid.T) {
				key, at := rapid.IntRange(0, 9).Draw(rt, "key"), rapid.Int64Range(0, 20).Draw(rt, "at")
				h.Set(key, time.Unix(at, 0))
				model[key] = at
			},
			"remove": func(rt *rapid.T) {
				key := rapid.IntRange(0, 9).Draw(rt, "key")
				h.Remove(key)
				delete(model, key)
			},
			"due": func(rt *rapid.T) {
				now := rapid.Int64Range(0, 20).Draw(rt, "now")
				got := h.Due(time.Unix(now, 0))
				for i, key := range got {
					at, ok := model[key]
					if !ok || at > now || i > 0 && model[got[i-1]] > at {
						rt.Fatalf("due %v of %v at %d", got, model, now)
					}
				}
				for _, key := range got {
					delete(model, key)
				}
				for key, at := range model {
					if at <= now {
						rt.Fatalf("%d is due at %d and was not given at %d", key, at, now)
					}
				}
			},
			"": func(rt *rapid.T) {
				_, at, ok := h.Next()
				if ok != (len(model) > 0) || h.Len() != len(model) {
					rt.Fatalf("next %v, %d of %v", ok, h.Len(), model)
				}
				if ok && at.Unix() != slices.Min(slices.Collect(maps.Values(model))) {
					rt.Fatalf("next at %d of %v", at.Unix(), model)
				}
			},
		})
	})
}
