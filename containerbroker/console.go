package containerbroker

import "errors"

// withConsole is an error with the last lines of a guest's console. Its text is
// the error's text without these lines.
type withConsole struct {
	error
	lines string
}

// Unwrap keeps the error's kind.
func (w withConsole) Unwrap() error { return w.error }

// WithConsole attaches the last lines of a guest's console to an error. A first
// boot may print passwords to the console, so the lines are not part of the
// error's text; only Console returns them. If lines is empty, it returns err.
func WithConsole(err error, lines string) error {
	if lines == "" {
		return err
	}
	return withConsole{err, lines}
}

// Console returns the console lines that WithConsole attached, or "".
func Console(err error) string {
	var w withConsole
	if errors.As(err, &w) {
		return w.lines
	}
	return ""
}
