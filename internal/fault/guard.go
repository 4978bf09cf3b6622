package fault

import (
	"log/slog"
	"runtime/debug"
)

// Guarded does the work and returns its panic as an Invalid error, with its
// stack logged: where others wait for work, or it runs in a goroutine of its
// own, nobody else would catch it. what names the work in the log.
func Guarded[T any](log *slog.Logger, what string, work func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = New(Invalid, "panic: %v", p)
			log.Error("Work panicked.", "work", what, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return work()
}
