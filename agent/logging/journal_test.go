package logging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/google/go-cmp/cmp"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// Records reach the journal with their priority and with fields for object,
// worker and event. Records that the journal refuses become plain lines.
func TestJournalRecords(t *testing.T) {
	var sent []string
	var broken error
	var plain bytes.Buffer
	h := journalHandler{level: slog.LevelDebug, plain: slog.NewTextHandler(&plain, nil), send: func(text string, p journal.Priority, fields map[string]string) error {
		sent = append(sent, fmt.Sprintf("%d %s %v", p, text, fields))
		return broken
	}}
	log := slog.New(h).With("worker", "provisioner-lxd")
	log.Debug("looked")
	log.Info("The worker is ready.")
	log.Warn("An operation failed.", "machine", "web", "error", "no space left on device")
	log.Error("The store failed.", "object", "host/host")
	store := Events{recorder{}, log}
	if err := store.Record(t.Context(), state.Event{
		Object: state.ID{Kind: spec.KindVolume, Name: "data"}, Level: state.LevelInfo, Reason: "Created",
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"7 looked worker=provisioner-lxd map[HOSTLER_WORKER:provisioner-lxd SYSLOG_IDENTIFIER:hostlerd]",
		"6 The worker is ready. worker=provisioner-lxd map[HOSTLER_WORKER:provisioner-lxd SYSLOG_IDENTIFIER:hostlerd]",
		`4 An operation failed. worker=provisioner-lxd machine=web error="no space left on device" ` +
			"map[HOSTLER_OBJECT:machine/web HOSTLER_WORKER:provisioner-lxd SYSLOG_IDENTIFIER:hostlerd]",
		"3 The store failed. worker=provisioner-lxd object=host/host map[HOSTLER_OBJECT:host/host HOSTLER_WORKER:provisioner-lxd SYSLOG_IDENTIFIER:hostlerd]",
		"6 Created worker=provisioner-lxd object=volume/data event=Created " +
			"map[HOSTLER_EVENT:Created HOSTLER_OBJECT:volume/data HOSTLER_WORKER:provisioner-lxd SYSLOG_IDENTIFIER:hostlerd]",
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	broken = errors.New("no buffer space available")
	log.Info("The journal is away.")
	if !strings.Contains(plain.String(), "The journal is away.") {
		t.Errorf("lost: %q", plain.String())
	}
}

// recorder takes events.
type recorder struct{ state.Backend }

func (recorder) Record(context.Context, ...state.Event) error { return nil }
