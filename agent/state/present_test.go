package state_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/agent/state"
	"hostler/internal/fault"
)

// A write into a removed or replaced file is not acknowledged: the next open
// would not find it.
// Attack: store
func TestRemovedFilesAcknowledgeNothing(t *testing.T) {
	for _, name := range []string{"state.db", "state.db-wal", "state.db-shm"} {
		for how, tamper := range map[string]func(path string) error{
			"removed": os.Remove,
			"replaced": func(path string) error {
				content, err := os.ReadFile(path)
				if err == nil {
					err = os.WriteFile(path+".new", content, 0o600)
				}
				if err == nil {
					err = os.Rename(path+".new", path)
				}
				return err
			},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				l, _, err := state.Open(t.Context(), state.Options{Dir: dir})
				if err != nil {
					t.Fatal(err)
				}
				write := func(name string) error {
					_, err := l.Write(t.Context(), state.Atomic, state.Write{ID: state.ID{Kind: "machine", Name: name}, Spec: []byte(`{}`)})
					return err
				}
				if err := write("before"); err != nil {
					t.Fatal(err)
				}
				if err := tamper(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				if err := write("after"); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), name+" was removed or replaced") {
					t.Errorf("a write into an unlinked file: %v", err)
				}
				if err := write("again"); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "restart the agent") {
					t.Errorf("another write: %v", err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
