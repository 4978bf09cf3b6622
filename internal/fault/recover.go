package fault

import (
	"log/slog"
	"runtime/debug"
)

// Recovering runs work and returns a panic of work as an Invalid error. It logs
// the stack and what, the name of the work. Use it in a goroutine, or for work
// that several callers wait for, because no caller recovers the panic there.
func Recovering[T any](log *slog.Logger, what string, work func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = New(Invalid, "panic: %v", p)
			log.Error("Work panicked.", "work", what, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return work()
}
