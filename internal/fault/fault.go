// Package fault holds the error kinds of all of hostler. A kind says how a
// caller may react to an error, not where the error came from.
package fault

import (
	"errors"
	"fmt"
)

// Kind is the kind of an error, by the reaction that it calls for.
type Kind string

// The kinds. An error without a kind counts as Transient (see KindOf).
const (
	// Transient errors may pass by themselves, so they are retried.
	Transient Kind = "transient"
	// NeedsOperator errors are retried only on `hostler retry`, on a changed
	// declaration or on an event about a related object.
	NeedsOperator Kind = "needs-operator"
	// Invalid means that the request itself is wrong and stays wrong.
	Invalid Kind = "invalid"
	// Conflict means that a foreign object is in the way, e.g. an instance with
	// the same name, or that a compare-and-swap lost its race.
	Conflict Kind = "conflict"
	// NotFound means that the named object does not exist.
	NotFound Kind = "not-found"
	// NotReady means that an input is missing. The object is tried again when the
	// input changes.
	NotReady Kind = "not-ready"
	// Forbidden means that the caller lacks the permission.
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

// Wrap returns err with a kind, or nil if err is nil.
func Wrap(kind Kind, err error) error {
	if err == nil {
		return nil
	}
	return &fault{kind: kind, err: err}
}

// Explain returns err with a text before it that says what failed, e.g. "cannot
// read web: no such file", or nil if err is nil. The kind of err stays.
func Explain(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// KindOf returns the outermost kind in err's chain. It returns Transient for an
// error without a kind, and "" for nil.
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

// Is reports whether the outermost kind in err's chain is the given kind. An
// error without a kind has none, not even Transient.
func Is(err error, kind Kind) bool {
	var f *fault
	return errors.As(err, &f) && f.kind == kind
}
