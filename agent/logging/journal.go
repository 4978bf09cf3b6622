// Package logging writes the log. It sends records to the journal with fields,
// logs a repeated cause once, and logs the events of the workers.
package logging

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"

	"hostler/agent/spec"
)

// NewLogger returns the logger of this process. It writes journal records if
// standard error leads to the journal, and plain lines otherwise. A cause that
// repeats is logged once (see onceHandler).
func NewLogger(debug bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.LevelInfo}
	if debug {
		o.Level = slog.LevelDebug
	}
	var h slog.Handler = slog.NewTextHandler(os.Stderr, o)
	if inJournal() {
		h = journalHandler{level: o.Level, send: journal.Send, plain: h}
	}
	return slog.New(newOnceHandler(h))
}

// inJournal says whether standard error leads to the journal (see
// JOURNAL_STREAM in systemd.exec(5)) and the journal accepts records.
func inJournal() bool {
	leads, err := journal.StderrIsJournalStream()
	return err == nil && leads && journal.Enabled()
}

// ErrorMark returns the prefix that gives a line on standard error the priority
// of an error in the journal (sd-daemon(3)), or "" outside the journal.
func ErrorMark() string {
	if inJournal() {
		return "<3>"
	}
	return ""
}

// journalHandler sends log records to the journal, with the record's object,
// worker and event as fields.
type journalHandler struct {
	level slog.Leveler
	attrs []slog.Attr
	send  func(message string, priority journal.Priority, fields map[string]string) error
	// plain handles the records that the journal refuses.
	plain slog.Handler
}

// Enabled implements slog.Handler.
func (h journalHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// Handle implements slog.Handler.
func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	fields := fieldsOf(allAttrs(h.attrs, r))
	fields["SYSLOG_IDENTIFIER"] = "hostlerd"
	if err := h.send(h.text(ctx, r), priorityOf(r.Level), fields); err != nil {
		return h.plain.Handle(ctx, r)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = slices.Concat(h.attrs, attrs)
	h.plain = h.plain.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler. The agent's log has no groups.
func (h journalHandler) WithGroup(string) slog.Handler { return h }

// text returns the message with its attributes, without the time and level,
// which the journal adds.
func (h journalHandler) text(ctx context.Context, r slog.Record) string {
	var b bytes.Buffer
	own := &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && slices.Contains([]string{slog.TimeKey, slog.LevelKey, slog.MessageKey}, a.Key) {
			return slog.Attr{}
		}
		return a
	}}
	_ = slog.NewTextHandler(&b, own).WithAttrs(h.attrs).Handle(ctx, r)
	return strings.TrimSpace(r.Message + " " + strings.TrimSpace(b.String()))
}

// priorityOf returns the priority of a level in the sense of syslog(3).
func priorityOf(l slog.Level) journal.Priority {
	switch {
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	case l >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}

// allAttrs returns the attributes of a record and its logger by their keys.
func allAttrs(attrs []slog.Attr, r slog.Record) map[string]string {
	all := map[string]string{}
	for _, a := range attrs {
		all[a.Key] = a.Value.String()
	}
	r.Attrs(func(a slog.Attr) bool {
		all[a.Key] = a.Value.String()
		return true
	})
	return all
}

// fieldsOf returns the journal's fields for a record's attributes.
func fieldsOf(attrs map[string]string) map[string]string {
	fields := map[string]string{}
	for key, value := range map[string]string{"HOSTLER_OBJECT": objectOf(attrs), "HOSTLER_WORKER": attrs["worker"], "HOSTLER_EVENT": attrs["event"]} {
		if value != "" {
			fields[key] = value
		}
	}
	return fields
}

// objectOf returns the object of a record as KIND/NAME, or "". Some callers use
// the kind as the attribute's key, e.g. machine=web.
func objectOf(attrs map[string]string) string {
	if strings.Contains(attrs["object"], "/") {
		return attrs["object"]
	}
	for _, kind := range []string{spec.KindMachine, spec.KindFilesystem, spec.KindVolume, spec.KindNetwork, spec.KindContainerType} {
		if name := attrs[kind]; name != "" {
			return kind + "/" + name
		}
	}
	return ""
}
