package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/paths"
)

// cleaned runs Clean on the host's directories.
func (l *lossyHost) cleaned() ([]string, error) {
	p := paths.New(l.dir, "", filepath.Join(l.dir, "state"), filepath.Join(l.dir, "run"))
	return Clean(l.t.Context(), Options{Paths: p, Logger: slog.New(slog.DiscardHandler)})
}

// remove removes the record of a machine.
func (l *lossyHost) remove(name string) {
	l.t.Helper()
	id := state.ID{Kind: spec.KindMachine, Name: name}
	if _, err := l.store.Write(l.t.Context(), state.Atomic, state.Write{ID: id, Revision: state.AnyRevision, Delete: true}); err != nil {
		l.t.Fatal(err)
	}
}

// A host with a machine is not cleaned. Once the machine is released, its copy
// starts with an empty record, has another lineage, records nothing and deletes
// nothing.
func TestACleanHostStartsWithAnEmptyRecord(t *testing.T) {
	l := newLossyHost(t)
	l.machine = "original"
	l.begin()
	l.made("web")
	if objects, err := l.cleaned(); !fault.Is(err, fault.Conflict) || len(objects) > 0 {
		t.Errorf("while the agent runs: %q, %v", objects, err)
	}
	l.close()
	for range 2 {
		if objects, err := l.cleaned(); err != nil || !slices.Equal(objects, []string{"machine/web"}) {
			t.Fatalf("with a machine: %q, %v", objects, err)
		}
	}
	l.begin()
	if names := l.recorded(); !slices.Equal(names, []string{"web"}) {
		t.Fatalf("after the refusals %q are recorded", names)
	}
	lineage := l.record().ID
	l.lxd.Add(containerbroker.Instance{Name: "web", Status: containerbroker.StatusStopped}) // released: without a stamp
	l.remove("web")
	l.close()

	for _, file := range []string{"state/images/cache", "state/dhcp/lan/leases", "state/quarantine/old", "run/hostler.sock", "run/lock/host", "etc/hostler/conf.d/web.yaml", "etc/sysctl.d/60-hostler.conf", "state/volumes/mine", "state/mounts/host/kept"} {
		path := filepath.Join(l.dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if objects, err := l.cleaned(); err != nil || len(objects) > 0 {
			t.Fatalf("with nothing recorded: %q, %v", objects, err)
		}
	}
	var left []string
	if err := filepath.WalkDir(l.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			left = append(left, strings.TrimPrefix(path, l.dir+"/"))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"etc/hostler/conf.d/web.yaml", "run/lock/host", "state/lock", "state/mounts/host/kept", "state/volumes/mine"}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}

	l.machine = "copy"
	l.begin()
	defer l.close()
	if names := l.recorded(); len(names) > 0 {
		t.Errorf("the copy has recorded %q", names)
	}
	if names := l.harvested(); len(names) > 0 {
		t.Errorf("the copy would delete %q", names)
	}
	if record := l.record(); record.ID == lineage || record.Machine != "copy" || record.CopiedTo != "" || record.Phase != spec.RecoveryNone {
		t.Errorf("the copy's record is %+v, the original's lineage %s", record, lineage)
	}
	if notices := l.allNotices(t.Context()); len(notices) > 0 {
		t.Errorf("notices %q", notices)
	}
}

// Nothing is removed while records may be missing.
func TestAHostWithALostStoreIsNotCleaned(t *testing.T) {
	l := newLossyHost(t)
	l.begin()
	l.made("web")
	l.close()
	db := filepath.Join(l.dir, "state", "state.db")
	if err := os.WriteFile(db, []byte("not a store"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if objects, err := l.cleaned(); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "start hostlerd") {
			t.Fatalf("%q, %v", objects, err)
		}
	}
	l.begin()
	if names := l.recorded(); !slices.Equal(names, []string{"web"}) {
		t.Errorf("%q are recorded", names)
	}
	l.close()
	if objects, err := l.cleaned(); err != nil && !strings.Contains(err.Error(), "their recovery waits for") || err == nil && !slices.Equal(objects, []string{"machine/web"}) {
		t.Errorf("after the recovery: %q, %v", objects, err)
	}
}
