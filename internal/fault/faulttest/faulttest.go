// Package faulttest checks errors in tests.
package faulttest

import (
	"strings"
	"testing"

	"hostler/internal/fault"
)

// Want ends the test unless the error is of the kind. It reports each of the
// words that the error's text lacks.
func Want(t testing.TB, err error, kind fault.Kind, words ...string) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Fatalf("got error %v of kind %q, want kind %q", err, fault.KindOf(err), kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}
