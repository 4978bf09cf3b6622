package containersetup_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/containersetup"
	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
)

// An event and a notice name all files that were moved away and are still there.
func TestMovedFilesAreReported(t *testing.T) {
	for typ, hypervisor := range map[spec.ContainerType]string{spec.LXD: "LXD", spec.Incus: "Incus"} {
		t.Run(hypervisor, func(t *testing.T) { movedFilesAreReported(t, typ, hypervisor) })
	}
}

func movedFilesAreReported(t *testing.T, typ spec.ContainerType, hypervisor string) {
	r := newRig(t)
	dir := t.TempDir()
	var runs int
	moved := make(chan string, 2)
	r.declare("web", typ)
	w := containersetup.New(reconcile.Common{
		Store: r.store, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Notice: func(key, text string) {
			if key == "aside "+string(typ) {
				moved <- text
			}
		},
	}, containersetup.Options{
		Type: typ, Initialiser: &preparable{}, Provisioner: &switchable{},
		Clear: func(context.Context) ([]string, bool, error) {
			runs++
			place := filepath.Join(dir, []string{"", "first", "second", "third"}[runs])
			if runs == 3 {
				return nil, false, os.ErrPermission
			}
			if err := os.WriteFile(place, nil, 0o600); err != nil {
				t.Error(err)
			}
			return []string{place}, runs < 2, nil
		},
		Lock:      r.lock,
		RestEvery: time.Nanosecond,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	<-moved
	text := <-moved
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(text, "containers that "+hypervisor+" does not know") || !strings.HasSuffix(text, ": "+filepath.Join(dir, "first")+", "+filepath.Join(dir, "second")) {
		t.Errorf("the notice is %q", text)
	}
	events, err := r.store.Events(t.Context(), state.EventQuery{Object: &state.ID{Kind: spec.KindContainerType, Name: string(typ)}})
	if err != nil || len(events) == 0 || events[len(events)-1].Reason != "SetAside" || events[len(events)-1].Message != text {
		t.Errorf("events %+v, %v", events, err)
	}
}

// The removal of a machine may have failed in the middle and have succeeded before
// the worker saw the failure, so files are moved away after each removal, even of a
// machine that the worker never saw, and after the last one before the provisioner
// ends.
func TestFilesAreMovedAwayAfterRemovals(t *testing.T) {
	r := newRig(t)
	var runs atomic.Int32
	r.clear = func(typ spec.ContainerType) bool {
		if typ == spec.LXD {
			runs.Add(1)
		}
		return false
	}
	r.start()
	r.declare("web", spec.LXD)
	r.declare("db", spec.LXD)
	r.eventually("the first run", func() bool { return runs.Load() == 1 && r.works[spec.LXD].running() })
	r.remove("web")
	r.eventually("a run after a removal", func() bool { return runs.Load() == 2 })
	r.declare("brief", spec.LXD)
	r.remove("brief")
	r.eventually("a run after a brief life", func() bool { return runs.Load() == 3 })
	r.remove("db")
	r.eventually("a run after the last removal", func() bool { return runs.Load() == 4 && !r.works[spec.LXD].running() })
}
