package api

import (
	"context"
	"fmt"

	"hostler/agent/declare"
	"hostler/agent/state"
)

// ApplyFolder makes the files of a directory, together with the documents that
// were applied, the declared state. It is idempotent.
func (s *Server) ApplyFolder(ctx context.Context, f declare.Folder) (declare.FolderAnswer, error) {
	ctx = state.Urgent(ctx) // a user saved a file and waits
	var answer declare.FolderAnswer
	var docs []declare.Document
	host := s.hostFor(ctx, ctx, false)
	err := s.rewrite(ctx, false, func(w *declare.State) (err error) {
		answer, docs, err = w.ApplyFolder(f, host)
		if err == nil && answer.Partial() { // store the refusals before the records change
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

// Redeclare creates objects again that a document declared while they were
// being removed. It leaves out objects whose removal has not ended.
func (s *Server) Redeclare(ctx context.Context) error {
	return s.rewrite(ctx, false, func(w *declare.State) error { w.Redeclare(); return nil })
}

// Awaits reports whether documents declare objects that are being removed.
func (s *Server) Awaits() bool { return s.awaits.Load() }

// Files returns the paths of the files from which the declared state comes.
// With them the caller finds files that were removed while no agent ran.
func (s *Server) Files(ctx context.Context) ([]string, error) {
	w, err := s.readState(ctx)
	if err != nil {
		return nil, err
	}
	return w.Files(), nil
}
