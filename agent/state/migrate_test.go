package state_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"hostler/agent/state"
)

// A store of an earlier schema opens with all its records, and takes events with
// the new fields.
func TestEarlierSchemaIsMigrated(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	script, err := os.ReadFile("testdata/schema-1.sql")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), string(script))
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	identity := `{"store-id":"40ca8a7e-035f-4150-8f2a-54ead730690a","generation":2}`
	if err := os.WriteFile(filepath.Join(dir, "store-id"), []byte(identity), 0o600); err != nil {
		t.Fatal(err)
	}
	web := state.ID{Kind: "machine", Name: "web"}
	for open := range 2 {
		l, report, err := state.Open(t.Context(), state.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if report.Fresh || report.Rebuilt {
			t.Errorf("open %d: %+v", open, report)
		}
		if o, err := l.Get(t.Context(), web); err != nil || o.UID != "u-1" || string(o.Status) != `{"state":"running"}` {
			t.Errorf("open %d: %+v, %v", open, o, err)
		}
		if in, err := l.Intents(t.Context()); err != nil || len(in) != 1 {
			t.Errorf("open %d: intents %+v, %v", open, in, err)
		}
		events, err := l.Events(t.Context(), state.EventQuery{Object: &web})
		if err != nil || len(events) != 2+open || events[0].Reason != "Failed" || events[0].Attempt != 0 || events[0].NextRetry != nil ||
			open == 1 && (events[2].Attempt != 3 || events[2].Limit != 7) {
			t.Errorf("open %d: events %+v, %v", open, events, err)
		}
		if err := l.Record(t.Context(), state.Event{Object: web, Reason: "Failed", Attempt: 3, Limit: 7}); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
