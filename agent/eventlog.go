package agent

import (
	"context"
	"log/slog"

	"hostler/agent/state"
)

// loggedEvents is a worker's store that logs the events the worker records.
type loggedEvents struct {
	state.Backend
	log *slog.Logger
}

// Record implements state.Backend.
func (s loggedEvents) Record(ctx context.Context, events ...state.Event) error {
	for _, e := range events {
		text := e.Reason
		if e.Message != "" {
			text += ": " + e.Message
		}
		s.log.Log(ctx, levelOf(e), text, "object", e.Object.Kind+"/"+e.Object.Name, "event", e.Reason) //nolint:sloglint // the event's own words
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
