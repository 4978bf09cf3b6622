package api

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/state"
)

// Folder is the folder of declaration files, conf.d.
type Folder interface {
	State() declare.FolderState
	// News returns a channel that is closed after the next reading of the files.
	News() <-chan struct{}
}

// watchFolder sends the state of the folder, and again when it has changed after
// a reading of the files.
func (s *Server) watchFolder(w http.ResponseWriter, r *http.Request) {
	l := raw.NewLines(w)
	if _, err := raw.Query(r); err != nil {
		l.Fail(err)
		return
	}
	if s.o.Folder == nil {
		_ = l.Send(client.Line{Folder: &client.FolderState{Read: true, Refused: []client.RefusedFile{}}, Done: true})
		return
	}
	ctx := r.Context()
	news := s.o.Folder.News()
	var last client.FolderState
	look := func(struct{}) error {
		now := folderView(s.o.Folder.State())
		if l.Begun && reflect.DeepEqual(now, last) {
			return nil
		}
		last = now
		return l.Send(client.Line{Folder: &now})
	}
	if err := look(struct{}{}); err != nil {
		l.Fail(err)
		return
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for {
			select {
			case <-ctx.Done():
				return
			case <-news:
			}
			news = s.o.Folder.News()
			select {
			case <-ctx.Done():
				return
			case read <- struct{}{}:
			}
		}
	}()
	raw.Follow(ctx, s.streamOptions(), l, read, 0, look)
}

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

func folderView(f declare.FolderState) client.FolderState {
	v := client.FolderState{Path: f.Path, Read: f.Read, Refused: []client.RefusedFile{}}
	for _, r := range f.Refused {
		v.Refused = append(v.Refused, client.RefusedFile(r))
	}
	return v
}
