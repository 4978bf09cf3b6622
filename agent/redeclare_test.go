package agent

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// remaker is an applier whose documents await a removal from a moment on.
type remaker struct {
	applier
	awaits atomic.Bool
	passes chan struct{}
}

func (r *remaker) Awaits() bool { return r.awaits.Load() }

func (r *remaker) Redeclare(context.Context) error {
	r.passes <- struct{}{}
	return nil
}

// An object whose removal ended just before its new document was written is created
// again: no further removal comes that would tell.
func TestADocumentThatCameAfterTheRemoval(t *testing.T) {
	h, _, _, _ := twoTypes(t)
	r := &remaker{passes: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.redeclare(r)(ctx) }()
	pass := func(what string) {
		t.Helper()
		select {
		case <-r.passes:
		case <-time.After(10 * time.Second):
			t.Fatalf("no pass %s", what)
		}
	}
	pass("at the start")
	r.awaits.Store(true)
	write := state.Write{ID: state.ID{Kind: spec.KindDeclaration, Name: "site"}, UID: "uid-site", Life: state.Alive, Spec: spec.Encode(spec.DeclarationRecord{})}
	if _, err := h.store.Write(t.Context(), state.Atomic, write); err != nil {
		t.Fatal(err)
	}
	pass("after the document")
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
