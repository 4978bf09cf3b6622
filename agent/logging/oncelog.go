package logging

import (
	"context"
	"log/slog"
	"regexp"
	"sync"
	"time"
)

// repeatAfter is how long a repeated cause is left out of the log.
const repeatAfter = time.Hour

// manyCauses is the maximum number of remembered causes. There is one for each
// failing action on an object.
const manyCauses = 4096

// varying matches the parts of an error that differ between retries: counts,
// delays, process ids.
var varying = regexp.MustCompile(`[0-9]+(\.[0-9]+)?(ms|[a-zµ])?`)

// onceHandler logs a warning or an error once per cause. A repeated failure of
// the same action on the same object for the same reason is only counted. The
// count appears in the next line about that object and action, which is written
// for another reason or after repeatAfter. All other records pass.
type onceHandler struct {
	slog.Handler
	attrs  []slog.Attr
	memory *causes
}

// causes holds the last logged reason for each object and action.
type causes struct {
	mu   sync.Mutex
	last map[string]cause
}

type cause struct {
	text     string
	logged   time.Time
	repeated int
}

func newOnceHandler(h slog.Handler) slog.Handler {
	return onceHandler{Handler: h, memory: &causes{last: map[string]cause{}}}
}

// Handle implements slog.Handler.
func (h onceHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	repeated, drop := h.memory.seen(allAttrs(h.attrs, r), r.Message, r.Time)
	if drop {
		return nil
	}
	if repeated > 0 {
		r.AddAttrs(slog.Int("repeated-before", repeated))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h onceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return onceHandler{Handler: h.Handler.WithAttrs(attrs), attrs: append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...), memory: h.memory}
}

// WithGroup implements slog.Handler. The agent's log has no groups.
func (h onceHandler) WithGroup(string) slog.Handler { return h }

// seen remembers a record. drop says whether the record's cause was logged
// already. repeated is how often the cause before it was dropped.
func (c *causes) seen(attrs map[string]string, message string, now time.Time) (repeated int, drop bool) {
	about := attrs["worker"] + " " + objectOf(attrs) + " " + attrs["action"] + " " + attrs["event"]
	text := varying.ReplaceAllString(attrs["error"]+" "+attrs["reason"], "#")
	if attrs["event"] != "" {
		text = varying.ReplaceAllString(message, "#")
	} else {
		about += " " + message
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.last[about]
	if known && was.text == text && now.Sub(was.logged) < repeatAfter {
		was.repeated++
		c.last[about] = was
		return 0, true
	}
	if len(c.last) >= manyCauses {
		clear(c.last)
	}
	c.last[about] = cause{text: text, logged: now}
	return was.repeated, false
}
