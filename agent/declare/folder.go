package declare

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/internal/fault"
	"hostler/internal/plan"
)

// Folder is a reading of a directory of declaration files.
type Folder struct {
	Path string
	// Files holds all files of the directory, by path.
	Files map[string]File
	// Settling holds the paths of files that are gone and may come back shortly,
	// e.g. while an editor saves them.
	Settling []string
	// Fresh is true if the agent has just begun to read the directory and does not
	// know which files existed before.
	Fresh bool
	// Moved is true if the directory is on another file system than at the last
	// reading.
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
	// Refused maps the path of each file that is not in force to the reason.
	Refused map[string]error
	// Settling holds the files that are gone and may come back shortly.
	Settling []string
	// Held maps the path of a file to its first step that waits for consent.
	Held map[string]plan.Step
	// Undeclared lists the held objects, which no document declares.
	Undeclared []string
}

// Partial reports whether a file may declare more objects than were read.
func (a FolderAnswer) Partial() bool { return len(a.Refused)+len(a.Settling) > 0 }

// Unread returns why the set of declared objects is incomplete after this
// reading.
func (a FolderAnswer) Unread() Unread {
	u := Unread{Settling: a.Settling}
	switch {
	case len(a.Refused) > 0:
		u.Reason = strings.Join(slices.Sorted(maps.Keys(a.Refused)), ", ") + " is not in force"
	case len(a.Settling) > 0:
		u.Reason = strings.Join(a.Settling, ", ") + " may come back in a moment"
	}
	return u
}

// ApplyFolder puts the files of a directory in force, together with the applied
// documents. Objects of a removed file are removed as configured, unless
// another document declares them or any file is refused. The returned documents
// are those of the valid files. The answer's Held is not set.
func (w *State) ApplyFolder(f Folder, host Host) (FolderAnswer, []Document, error) {
	answer := FolderAnswer{Refused: map[string]error{}, Settling: f.Settling}
	if f.Fresh && w.waiting() {
		answer.Settling = append(slices.Clone(f.Settling), "a file of "+f.Path)
	}
	docs := w.readFolder(f, answer.Refused)
	w.retype(docs)
	left := w.leaving(f, docs)
	if err := w.takeOver(docs, left, host, answer.Refused); err != nil {
		return answer, docs, err
	}
	// A file that may come back shortly may declare any missing object.
	r := removal{partial: answer.Partial(), lost: f.Moved || len(f.Files) == 0 && (len(left) > 0 || w.orphaned())}
	if len(answer.Settling) == 0 {
		w.leave(left)
	} else {
		w.keepEmptied(left)
	}
	w.updateRecords(nil, r)
	answer.Undeclared = w.Held()
	return answer, docs, nil
}

// takeOver puts the valid documents in force and adds the reasons against the
// others to refused, by path. left names the documents that give up their
// objects.
func (w *State) takeOver(docs []Document, left []string, host Host, refused map[string]error) error {
	r := w.request(docs)
	w.inTheWay(docs, r.Refused)
	for _, name := range left {
		doc := r.Wanted[name]
		doc.Rank = documents.Leaving
		r.Wanted[name] = doc
	}
	for {
		m := documents.Merge(r)
		why, err := w.refuses(docs, m, host)
		if err != nil {
			return err
		}
		if why != nil {
			if err := w.blame(docs, m, host, why, r.Refused); err != nil {
				return err
			}
			continue
		}
		w.enforce(m, docs)
		for _, doc := range docs {
			if err := m.Refused[doc.Name]; err != nil {
				refused[doc.Source] = err
			}
		}
		return nil
	}
}

// inTheWay adds documents to refused if they conflict with existing objects.
func (w *State) inTheWay(docs []Document, refused map[string]error) {
	for _, doc := range docs {
		if err := w.checkFixed(doc); err != nil {
			refused[doc.Name] = err
		}
	}
}

// refuses returns why the host has no room for the documents, or nil if it has
// room. err is a failure of the check.
func (w *State) refuses(docs []Document, m documents.Merged, host Host) (why, err error) {
	trial, err := w.again()
	if err != nil {
		return nil, err
	}
	trial.enforce(m, docs)
	trial.updateRecords(nil, removal{partial: true})
	if why := trial.checkCount(); why != nil {
		return why, nil
	}
	// Unlike a conflict of documents, this passes when the host changes.
	return fault.Wrap(fault.NotReady, host.Refuse(trial.Planned())), nil
}

// blame adds the new documents to refused for which the host has no room. Each
// of them does not fit even alone. If the documents only do not fit together,
// blame adds the last of them.
func (w *State) blame(docs []Document, m documents.Merged, host Host, why error, refused map[string]error) error {
	before := w.inForce()
	last := ""
	for _, doc := range docs {
		if previous, known := before[doc.Name]; m.Refused[doc.Name] != nil || known && same(previous.Declaration, doc.Declaration) {
			continue
		}
		alone := []Document{doc}
		err, failed := w.refuses(alone, documents.Merge(w.request(alone)), host)
		if failed != nil {
			return failed
		}
		if last = doc.Name; err != nil {
			refused[doc.Name] = err
		}
	}
	switch {
	case last == "": // no document is new, so the host changed
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
func (w *State) readFolder(f Folder, refused map[string]error) []Document {
	byName := map[string]Document{}
	for _, path := range slices.Sorted(maps.Keys(f.Files)) {
		file := f.Files[path]
		if file.Err != nil {
			refused[path] = file.Err
			continue
		}
		doc, err := Parse(path, file.Content)
		if err == nil {
			doc.Source = path
			err = w.nameTaken(doc)
		}
		if err != nil {
			refused[path] = err
			continue
		}
		if other, twice := byName[doc.Name]; twice {
			loser := doc
			if w.comesFrom(doc.Name, path) {
				byName[doc.Name], loser = doc, other
			}
			refused[loser.Source] = fault.New(fault.Conflict, "%s and %s are both the declaration %s; give either another `name:`",
				byName[doc.Name].Source, loser.Source, doc.Name)
			continue
		}
		byName[doc.Name] = doc
	}
	docs := make([]Document, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		docs = append(docs, byName[name])
	}
	return docs
}

func (w *State) comesFrom(name, path string) bool {
	d := w.declarations[name]
	return d != nil && d.record.Source == path
}

// nameTaken refuses a document that has the name of an applied declaration with
// other objects.
func (w *State) nameTaken(doc Document) error {
	d := w.declarations[doc.Name]
	if d == nil || d.record.Source != spec.SourceApply || len(d.record.Document.Objects()) == 0 {
		return nil
	}
	for _, object := range d.record.Document.Objects() {
		if _, both := doc.Lines[object]; both {
			return nil
		}
	}
	return fault.New(fault.Conflict, "the declaration %s was applied by hand and declares other objects; give the document in %s another `name:`", doc.Name, doc.Source)
}

// leaving names the declarations whose file is gone or holds another declaration.
func (w *State) leaving(f Folder, docs []Document) (left []string) {
	byPath, byName := map[string]bool{}, map[string]bool{}
	for _, doc := range docs {
		byPath[doc.Source], byName[doc.Name] = true, true
	}
	for name, d := range w.declarations {
		source := d.record.Source
		if !isFile(source) || filepath.Dir(source) != f.Path || byName[name] {
			continue
		}
		if _, there := f.Files[source]; !there || byPath[source] {
			left = append(left, name)
		}
	}
	slices.Sort(left)
	return left
}

// leave drops the declarations in left.
func (w *State) leave(left []string) {
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

// keepEmptied keeps the declarations in left whose objects were all taken over.
// They stay without objects, so that a restarted agent knows that their files
// are gone.
func (w *State) keepEmptied(left []string) {
	for _, name := range left {
		if d := w.declarations[name]; d.gone {
			d.gone, d.record.Document = false, spec.Declaration{}
		}
	}
}

// Files lists the files behind the declared state, sorted.
func (w *State) Files() []string {
	files := map[string]bool{}
	for _, d := range w.declarations {
		if isFile(d.record.Source) {
			files[d.record.Source] = true
		}
	}
	return slices.Sorted(maps.Keys(files))
}
