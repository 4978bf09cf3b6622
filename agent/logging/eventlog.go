package logging

import (
	"context"
	"log/slog"

	"hostler/agent/state"
)

// Events is a worker's store that logs the events the worker records.
type Events struct {
	state.Backend
	Log *slog.Logger
}

// Record implements state.Backend.
func (s Events) Record(ctx context.Context, events ...state.Event) error {
	for _, e := range events {
		text := e.Reason
		if e.Message != "" {
			text += ": " + e.Message
		}
		attrs := []any{"object", e.Object.Kind + "/" + e.Object.Name, "event", e.Reason}
		if e.Attempt > 0 {
			attrs = append(attrs, "attempt", e.Attempt, "limit", e.Limit, "next-retry", e.NextRetry)
		}
		s.Log.Log(ctx, levelOf(e), text, attrs...) //nolint:sloglint // the event's own words
	}
	return s.Backend.Record(ctx, events...)
}

func levelOf(e state.Event) slog.Level {
	switch e.Level {
	case state.LevelError:
		return slog.LevelError
	case state.LevelWarn:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
