package api

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// Folder is a reading of a directory of declaration files.
type Folder struct {
	Path string
	// Files holds all files of the directory, by path.
	Files map[string]File
	// Settling holds the paths of files that are gone and may come back shortly,
	// e.g. while an editor saves them.
	Settling []string
	// Fresh: the agent has just begun to read the directory and does not know
	// which files existed before.
	Fresh bool
	// Moved: the directory is on another file system than at the last reading.
	Moved bool
}

// File is a file of the directory.
type File struct {
	Content []byte
	// Err is the error of reading the file; Content is empty then.
	Err error
}

// FolderAnswer says which files of a directory are in force.
type FolderAnswer struct {
	// Refused holds, by path, why a file is not in force.
	Refused map[string]error
	// Settling holds the files that are gone and may come back shortly.
	Settling []string
	// Held holds, by path, the first step that waits for consent.
	Held map[string]client.Step
	// Undeclared lists the held objects (KIND/NAME), which no document
	// declares.
	Undeclared []string
}

// ApplyFolder puts the files of a directory in force, together with the applied
// documents. Objects of a removed file are removed as configured, unless
// another document declares them or any file is refused. It is idempotent.
func (s *Server) ApplyFolder(ctx context.Context, f Folder) (FolderAnswer, error) {
	ctx = state.Urgent(ctx) // a user saved a file and waits
	var answer FolderAnswer
	var docs []document
	err := s.rewrite(ctx, false, func(w *declaredState) error {
		answer = FolderAnswer{Refused: map[string]error{}, Held: map[string]client.Step{}, Settling: f.Settling}
		if f.Fresh && w.waiting() {
			answer.Settling = append(slices.Clone(f.Settling), "a file of "+f.Path)
		}
		docs = w.readFolder(f, answer.Refused)
		left := w.leaving(f, docs)
		if err := s.takeOver(ctx, w, docs, left, answer.Refused); err != nil {
			return err
		}
		// A file that may come back shortly may declare any missing object.
		r := removal{partial: len(answer.Refused)+len(answer.Settling) > 0, lost: f.Moved || len(f.Files) == 0 && (len(left) > 0 || w.orphaned())}
		if len(answer.Settling) == 0 {
			w.leave(left)
		} else {
			w.keepEmptied(left)
		}
		if r.partial { // visible before the records change
			s.folder.Store(&FolderAnswer{Refused: answer.Refused, Settling: answer.Settling})
		}
		_, err := w.updateRecords(nil, r)
		answer.Undeclared = w.held()
		return err
	})
	if err != nil {
		s.folder.Store(&FolderAnswer{Refused: map[string]error{f.Path: err}})
		return answer, err
	}
	s.folder.Store(&FolderAnswer{Refused: answer.Refused, Settling: answer.Settling})
	return answer, s.heldOf(ctx, docs, &answer)
}

// takeOver puts the valid documents in force and adds the reasons against the
// others to refused, by path. left names the documents that give up their
// objects.
func (s *Server) takeOver(ctx context.Context, w *declaredState, docs []document, left []string, refused map[string]error) error {
	r := w.request(docs)
	w.inTheWay(docs, r.Refused)
	for _, name := range left {
		doc := r.Wanted[name]
		doc.Rank = documents.Leaving
		r.Wanted[name] = doc
	}
	for {
		m := documents.Merge(r)
		why, err := s.refuses(ctx, docs, m)
		if err != nil {
			return err
		}
		if why != nil {
			if err := s.blame(ctx, w, docs, m, why, r.Refused); err != nil {
				return err
			}
			continue
		}
		w.enforce(m, docs)
		for _, doc := range docs {
			if err := m.Refused[doc.name]; err != nil {
				refused[doc.source] = err
			}
		}
		return nil
	}
}

// refuses checks whether the host has room for the documents; why is the reason
// if not.
func (s *Server) refuses(ctx context.Context, docs []document, m documents.Merged) (why, err error) {
	w, err := s.readState(ctx)
	if err != nil {
		return nil, err
	}
	w.enforce(m, docs)
	if _, err := w.updateRecords(nil, removal{partial: true}); err != nil {
		return nil, err
	}
	if why := w.checkCount(); why != nil {
		return why, nil
	}
	return s.o.Service.Planner.Refuse(ctx, w.planned()), nil
}

// blame refuses new documents for which the host has no room: each document
// that is refused alone, or the last document if only several together are
// refused.
func (s *Server) blame(ctx context.Context, w *declaredState, docs []document, m documents.Merged, why error, refused map[string]error) error {
	before := w.inForce()
	last := ""
	for _, doc := range docs {
		if previous, known := before[doc.name]; m.Refused[doc.name] != nil || known && same(previous.Declaration, doc.decl) {
			continue
		}
		alone := []document{doc}
		err, failed := s.refuses(ctx, alone, documents.Merge(w.request(alone)))
		if failed != nil {
			return failed
		}
		if last = doc.name; err != nil {
			refused[doc.name] = err
		}
	}
	switch {
	case last == "": // no new document: the host changed
		return why
	case len(refused) == 0 || refused[last] == nil && !newlyRefused(m, refused):
		refused[last] = why
	}
	return nil
}

func newlyRefused(m documents.Merged, refused map[string]error) bool {
	for name := range refused {
		if m.Refused[name] == nil {
			return true
		}
	}
	return false
}

// readFolder parses the files and refuses invalid files.
func (w *declaredState) readFolder(f Folder, refused map[string]error) []document {
	byName := map[string]document{}
	for _, path := range slices.Sorted(maps.Keys(f.Files)) {
		file := f.Files[path]
		if file.Err != nil {
			refused[path] = file.Err
			continue
		}
		decl, lines, err := spec.ParseAlone(path, file.Content)
		if err != nil {
			refused[path] = err
			continue
		}
		doc := document{name: decl.Name, source: path, place: path, decl: decl, text: file.Content, lines: lines}
		if err := w.nameTaken(doc); err != nil {
			refused[path] = err
			continue
		}
		if other, twice := byName[doc.name]; twice {
			loser := doc
			if w.comesFrom(doc.name, path) {
				byName[doc.name], loser = doc, other
			}
			refused[loser.source] = fault.New(fault.Conflict, "%s and %s are both the declaration %s; give either another `name:`",
				byName[doc.name].source, loser.source, doc.name)
			continue
		}
		byName[doc.name] = doc
	}
	docs := make([]document, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		docs = append(docs, byName[name])
	}
	return docs
}

func (w *declaredState) comesFrom(name, path string) bool {
	d := w.declarations[name]
	return d != nil && d.record.Source == path
}

// nameTaken refuses a file with the name of an applied declaration that
// declares other objects.
func (w *declaredState) nameTaken(doc document) error {
	d := w.declarations[doc.name]
	if d == nil || d.record.Source != spec.SourceApply || len(d.record.Document.Objects()) == 0 {
		return nil
	}
	for _, object := range d.record.Document.Objects() {
		if _, both := doc.lines[object]; both {
			return nil
		}
	}
	return fault.New(fault.Conflict, "the declaration %s was applied by hand and declares other objects; give the document in %s another `name:`", doc.name, doc.source)
}

// leaving names the declarations whose file is gone or holds another declaration.
func (w *declaredState) leaving(f Folder, docs []document) (left []string) {
	byPath, byName := map[string]document{}, map[string]document{}
	for _, doc := range docs {
		byPath[doc.source], byName[doc.name] = doc, doc
	}
	for name, d := range w.declarations {
		source := d.record.Source
		if !isFile(source) || filepath.Dir(source) != f.Path || byName[name].name != "" {
			continue
		}
		_, there := f.Files[source]
		if _, read := byPath[source]; !there || read {
			left = append(left, name)
		}
	}
	slices.Sort(left)
	return left
}

// leave drops the declarations in left.
func (w *declaredState) leave(left []string) {
	for _, name := range left {
		d := w.declarations[name]
		if d.gone {
			continue
		}
		d.gone = true
		for _, object := range d.record.Document.Objects() {
			if w.owners[object] == name {
				delete(w.owners, object)
			}
		}
	}
}

// keepEmptied keeps the declarations in left, without the objects that others
// took over, so that a restarted agent knows that their files are gone.
func (w *declaredState) keepEmptied(left []string) {
	for _, name := range left {
		if d := w.declarations[name]; d.gone {
			d.gone, d.record.Document = false, spec.Declaration{}
		}
	}
}

// heldOf finds the steps of files that wait for consent.
func (s *Server) heldOf(ctx context.Context, docs []document, answer *FolderAnswer) error {
	w, err := s.readState(ctx)
	if err != nil {
		return err
	}
	steps, err := s.steps(ctx, w, docs, nil, false)
	if err != nil {
		return fmt.Errorf("cannot plan the files: %w", err)
	}
	for _, st := range steps {
		for _, doc := range docs {
			if _, own := doc.lines[st.Object]; own && st.Held != "" && answer.Held[doc.source].Object == "" {
				answer.Held[doc.source] = st
			}
		}
	}
	return nil
}

// Redeclare creates again the objects that were declared again during their
// removal and are gone now.
func (s *Server) Redeclare(ctx context.Context) error {
	return s.rewrite(ctx, false, func(w *declaredState) error {
		_, err := w.updateRecords(nil, removal{partial: true})
		return err
	})
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
	files := map[string]bool{}
	for _, d := range w.declarations {
		if isFile(d.record.Source) {
			files[d.record.Source] = true
		}
	}
	return slices.Sorted(maps.Keys(files)), nil
}

// readDeclared are the kinds of objects in a declaredState.
var readDeclared = append([]string{spec.KindDeclaration, spec.KindMachine, spec.KindHost}, dependencyKinds...)

// readState reads the declared state.
func (s *Server) readState(ctx context.Context) (*declaredState, error) {
	objects, _, err := s.o.Backend.List(ctx, readDeclared...)
	if err != nil {
		return nil, err
	}
	w, err := newDeclaredState(objects)
	if err != nil {
		return nil, err
	}
	intents, err := s.o.Backend.Intents(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range intents {
		w.making[i.UID] = true
	}
	return w, nil
}
