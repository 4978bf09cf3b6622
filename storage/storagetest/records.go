package storagetest

import (
	"testing"

	"hostler/internal/fault"
	"hostler/storage"
)

// testRecords tests that the text beside a stamp can be stored, replaced and
// read back, and that other stamps cannot change it. find returns the listed
// text.
func testRecords(t *testing.T, source any, r storage.Ref, find func() string) {
	t.Helper()
	s, ok := source.(storage.Recorder)
	if !ok {
		return
	}
	record := func(r storage.Ref, text string) error {
		return s.StoreRecords(t.Context(), []storage.RecordParams{{Ref: r, Record: text}})[0]
	}
	for _, text := range []string{"{\"a\": \"é\\n\"}", "", "last"} {
		noError(t, record(r, text))
		if got := find(); got != text {
			t.Errorf("kept %q, found %q", text, got)
		}
	}
	other := r
	other.Stamp.UID = "another"
	wantKind(t, record(other, "theirs"), fault.Conflict)
	if got := find(); got != "last" {
		t.Errorf("another object's text %q was kept", got)
	}
	none := r
	none.ID = "none"
	noError(t, record(none, "lost"))
	none.ID = "../none"
	wantKind(t, record(none, "lost"), fault.Invalid)
}
