package containerbroker

import "errors"

// withConsole is an error with the last lines of a guest's console. Its text is
// that of the error alone.
type withConsole struct {
	error
	lines string
}

// Unwrap keeps the error's kind.
func (w withConsole) Unwrap() error { return w.error }

// WithConsole gives an error the last lines of a guest's console, on which a
// first boot may print passwords: they are no part of the error's text, and
// only Console returns them. Without lines it returns err.
func WithConsole(err error, lines string) error {
	if lines == "" {
		return err
	}
	return withConsole{err, lines}
}

// Console returns the lines of a guest's console that an error bears, "" for
// none.
func Console(err error) string {
	var w withConsole
	if errors.As(err, &w) {
		return w.lines
	}
	return ""
}
