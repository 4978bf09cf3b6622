package api

import (
	"context"
	"fmt"
	"strings"

	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// declareTries bounds the attempts at a change. An attempt fails if an object
// is changed or removed between the read and the write.
const declareTries = 10

// readState reads the declared state.
func (s *Server) readState(ctx context.Context) (*declare.State, error) {
	objects, _, err := s.o.Backend.List(ctx, declare.Kinds...)
	if err != nil {
		return nil, err
	}
	intents, err := s.o.Backend.Intents(ctx)
	if err != nil {
		return nil, err
	}
	return declare.New(objects, intents)
}

// readSettings reads the host's record and the container types. It reads no
// other records, so that it works even if another record is unreadable.
func (s *Server) readSettings(ctx context.Context) (*declare.State, error) {
	objects, _, err := s.o.Backend.List(ctx, spec.KindHost, spec.KindContainerType)
	if err != nil {
		return nil, err
	}
	return declare.New(objects, nil)
}

// rewrite changes the declared state; see edit().
func (s *Server) rewrite(ctx context.Context, dry bool, change func(*declare.State) error) error {
	return s.edit(ctx, dry, s.readState, func(w *declare.State) error {
		err := change(w)
		if err == nil && !dry {
			s.awaits.Store(w.Awaits()) // set before a worker can remove an awaited object
		}
		return err
	})
}

// set changes the settings of the host or of a container type; see edit().
func (s *Server) set(ctx context.Context, change func(*declare.State) error) error {
	return s.edit(ctx, false, s.readSettings, change)
}

// edit reads a state, calls change on it and writes the result atomically. If an
// object was changed or removed meanwhile, it reads the state and calls change
// again.
func (s *Server) edit(ctx context.Context, dry bool, read func(context.Context) (*declare.State, error), change func(*declare.State) error) error {
	if !dry {
		unlock, err := s.lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
	}
	for try := 1; ; try++ {
		w, err := read(ctx)
		if err != nil {
			return err
		}
		if err := change(w); err != nil || dry {
			return err
		}
		writes := w.Writes()
		if len(writes) == 0 {
			return nil
		}
		if err = s.commit(ctx, writes); err == nil {
			s.noteHeld(ctx, w)
		}
		raced := fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound)
		if !raced || try == declareTries {
			return err
		}
	}
}

// lock waits until no other change is in progress. A change observes the host,
// which may take long, so the wait ends with ctx.
func (s *Server) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case s.declaring <- struct{}{}:
		return func() { <-s.declaring }, nil
	case <-ctx.Done():
		return nil, fault.New(fault.Transient, "another change is still being made: %w", ctx.Err())
	}
}

// commit makes the writes durably and atomically.
func (s *Server) commit(ctx context.Context, writes []state.Write) error {
	if err := failpoint.Hit(failpoint.APIAcceptedNotDurable); err != nil {
		return err
	}
	if _, err := s.o.Backend.Write(ctx, state.Atomic, writes...); err != nil {
		return err
	}
	return failpoint.Hit(failpoint.APIDurableNotConfirmed)
}

// unread returns the reason why the set of declared objects is incomplete, or
// an empty Unread if the set is complete.
func (s *Server) unread(w *declare.State) declare.Unread {
	answer := s.folder.Load()
	switch {
	case answer == nil && (s.o.Unread != nil || len(w.Files()) > 0):
		return declare.Unread{Reason: "the declaration files are not read yet"}
	case answer == nil:
		return declare.Unread{}
	}
	unread := answer.Unread()
	if unread.Reason == "" && s.o.Unread != nil {
		unread.Reason = s.o.Unread()
	}
	return unread
}

// noteHeld records an event for each object that became held with this write.
// After a crash the event may be missing.
func (s *Server) noteHeld(ctx context.Context, w *declare.State) {
	var events []state.Event
	for _, object := range w.NewlyHeld() {
		events = append(events, state.Event{
			Time: s.now(), Object: declare.ID(object), Level: state.LevelWarn, Reason: "Held",
			Message: "no document declares it any more; it is held: `hostler allow destroy " + object + "` removes it with its data",
		})
	}
	if len(events) == 0 {
		return
	}
	if err := s.o.Backend.Record(ctx, events...); err != nil {
		s.log.Warn("cannot record that objects are held", "error", err)
	}
}

// heldNotice returns a notice that names the held objects and how to remove
// them, or "" if there are none.
func (s *Server) heldNotice(ctx context.Context) (string, error) {
	w, err := s.readState(ctx)
	if err != nil {
		return "", err
	}
	held := w.Held()
	if len(held) == 0 {
		return "", nil
	}
	const most = 20
	names := strings.Join(held[:min(len(held), most)], " ")
	if len(held) > most {
		names += fmt.Sprintf(" and %d more", len(held)-most)
	}
	text := "no document declares " + names + " any more; held: `hostler allow destroy KIND/NAME` removes an object with its data"
	if why := s.unread(w).Reason; why != "" {
		text += "; no object is removed while " + why
	}
	return text, nil
}
