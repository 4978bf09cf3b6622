package hosttest

import (
	"slices"
	"testing"
)

// Tests that overlap change the host once, and the last of them restores it.
func TestShare(t *testing.T) {
	var done []string
	use := func(t *testing.T) {
		Share(t, "setting", func() func(testing.TB) {
			done = append(done, "set")
			return func(testing.TB) { done = append(done, "restore in "+t.Name()) }
		})
	}
	t.Run("overlapping", func(t *testing.T) {
		use(t)
		t.Run("inner", use)
		if !slices.Equal(done, []string{"set"}) {
			t.Errorf("after the inner test: %q", done)
		}
	})
	t.Run("alone", use)
	want := []string{"set", "restore in TestShare/overlapping", "set", "restore in TestShare/alone"}
	if !slices.Equal(done, want) {
		t.Errorf("done: %q, want %q", done, want)
	}
}
