package containerbroker

import "errors"

// notMade is the error of a create attempt whose outcome is known: it left no
// instance, and none of it can appear later.
type notMade struct{ error }

func (n *notMade) Unwrap() error { return n.error }

// NotMade marks the error of a Create that left no instance, e.g. because the
// hypervisor refused the request. A driver may mark an error only if no instance
// of the attempt can appear later. So it does not mark a lost answer.
func NotMade(err error) error { return &notMade{err} }

// IsNotMade reports whether NotMade() marked err.
func IsNotMade(err error) bool {
	var n *notMade
	return errors.As(err, &n)
}
