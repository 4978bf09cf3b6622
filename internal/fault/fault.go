// Package fault holds the one vocabulary of error kinds that every part of
// hostler shares. A kind says what a caller may do about an error, never
// where it came from.
package fault

import (
	"errors"
	"fmt"
)

// Kind says what can be done about an error.
type Kind string

// The kinds. An error without a kind counts as Transient (see KindOf).
const (
	// Transient errors may go away by themselves: they are retried.
	Transient Kind = "transient"
	// NeedsOperator errors are retried only on `hostler retry`, on a changed
	// declaration or on an event that bears on the object.
	NeedsOperator Kind = "needs-operator"
	// Invalid means the request itself is wrong and will stay wrong.
	Invalid Kind = "invalid"
	// Conflict means somebody else's object stands in the way, or a
	// compare-and-swap lost its race.
	Conflict Kind = "conflict"
	// NotFound means the named object does not exist.
	NotFound Kind = "not-found"
	// NotReady means an input is still missing; the object is looked at again
	// when that input changes.
	NotReady Kind = "not-ready"
	// Forbidden means the caller may not do this.
	Forbidden Kind = "forbidden"
)

type fault struct {
	kind Kind
	err  error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// New returns an error of the given kind. The format follows fmt.Errorf,
// including %w.
func New(kind Kind, format string, args ...any) error {
	return &fault{kind: kind, err: fmt.Errorf(format, args...)}
}

// Wrap gives err a kind; nil stays nil.
func Wrap(kind Kind, err error) error {
	if err == nil {
		return nil
	}
	return &fault{kind: kind, err: err}
}

// KindOf returns the outermost kind found in err's chain, Transient for an
// error without one, and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var f *fault
	if errors.As(err, &f) {
		return f.kind
	}
	return Transient
}

// Is reports whether err carries the given kind explicitly.
func Is(err error, kind Kind) bool {
	var f *fault
	return errors.As(err, &f) && f.kind == kind
}
