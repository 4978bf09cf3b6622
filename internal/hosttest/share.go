package hosttest

import (
	"sync"
	"testing"
)

// sharing is a setting of the host that several running tests need.
type sharing struct {
	users   int
	restore func(testing.TB)
}

var (
	sharingMu sync.Mutex
	shared    = map[string]*sharing{}
)

// Share changes a setting of the host for the time of a test. Tests that run in
// parallel share a change with the same name. set runs for the first of these
// tests. The function that set returns runs when the last of them has ended,
// and reports errors to the test that it gets as its argument.
func Share(t testing.TB, name string, set func() (restore func(testing.TB))) {
	t.Helper()
	sharingMu.Lock()
	defer sharingMu.Unlock()
	s := shared[name]
	if s == nil {
		s = &sharing{restore: set()}
		shared[name] = s
	}
	s.users++
	t.Cleanup(func() {
		sharingMu.Lock()
		defer sharingMu.Unlock()
		if s.users--; s.users == 0 {
			delete(shared, name)
			s.restore(t)
		}
	})
}
