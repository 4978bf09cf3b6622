package api

import (
	"context"
	"fmt"

	"hostler/agent/declare"
	"hostler/agent/state"
)

// ApplyFolder puts the files of a directory in force, together with the applied
// documents. It is idempotent.
func (s *Server) ApplyFolder(ctx context.Context, f declare.Folder) (declare.FolderAnswer, error) {
	ctx = state.Urgent(ctx) // a user saved a file and waits
	var answer declare.FolderAnswer
	var docs []declare.Document
	host := s.hostFor(ctx, ctx, false)
	err := s.rewrite(ctx, false, func(w *declare.State) (err error) {
		answer, docs, err = w.ApplyFolder(f, host)
		if err == nil && answer.Partial() { // visible before the records change
			s.folder.Store(&declare.FolderAnswer{Refused: answer.Refused, Settling: answer.Settling})
		}
		return err
	})
	if err != nil {
		s.folder.Store(&declare.FolderAnswer{Refused: map[string]error{f.Path: err}})
		return answer, err
	}
	s.folder.Store(&declare.FolderAnswer{Refused: answer.Refused, Settling: answer.Settling})
	w, err := s.readState(ctx)
	if err != nil {
		return answer, err
	}
	if answer.Held, err = w.HeldSteps(docs, host); err != nil {
		return answer, fmt.Errorf("cannot plan the files: %w", err)
	}
	return answer, nil
}

// Redeclare creates again the objects that were declared again during their
// removal and are gone now.
func (s *Server) Redeclare(ctx context.Context) error {
	return s.rewrite(ctx, false, func(w *declare.State) error { w.Redeclare(); return nil })
}

// Awaits reports whether documents declare objects that are being removed.
func (s *Server) Awaits() bool { return s.awaits.Load() }

// Files returns the files behind the declared state. The caller uses it to find
// files that were removed while the agent did not run.
func (s *Server) Files(ctx context.Context) ([]string, error) {
	w, err := s.readState(ctx)
	if err != nil {
		return nil, err
	}
	return w.Files(), nil
}
