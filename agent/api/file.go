package api

import (
	"context"
	"maps"
	"slices"

	"hostler/agent/spec"
)

// ApplyFile makes the content of a declaration file the declared state. The
// path is the declaration's source: declarations that the file held before
// under another name go. What it declares it may take from the files in gone,
// which are there no more: a file that was renamed, split or merged keeps its
// machines. It is idempotent.
func (s *Server) ApplyFile(ctx context.Context, path string, content []byte, gone ...string) (Plan, error) {
	decl, err := spec.Parse(path, content)
	if err != nil {
		return Plan{}, err
	}
	doc := document{name: decl.Name, source: path, decl: decl}
	return s.declare(ctx, []document{doc}, func(w *world) []string {
		dropped := slices.DeleteFunc(w.fromSource(path), func(n string) bool { return n == decl.Name })
		for _, source := range gone {
			for _, n := range w.fromSource(source) {
				w.yield(n, doc)
			}
		}
		return dropped
	}, nil, false)
}

// yield gives the document what the declaration of a file that is gone
// declares, too; the rest of that declaration stays.
func (w *world) yield(name string, doc document) {
	d := w.declarations[name]
	if name == doc.name {
		d.record.Source = doc.source
		return
	}
	d.record.Document.Machines = without(d.record.Document.Machines, doc.decl.Machines)
	d.record.Document.Networks = without(d.record.Document.Networks, doc.decl.Networks)
	d.record.Document.Volumes = without(d.record.Document.Volumes, doc.decl.Volumes)
	d.record.Document.Filesystems = without(d.record.Document.Filesystems, doc.decl.Filesystems)
	d.gone = len(d.record.Document.Objects()) == 0
}

// without returns a copy: the map belongs to the stored record.
func without[V any](all, taken map[string]V) map[string]V {
	left := maps.Clone(all)
	maps.DeleteFunc(left, func(name string, _ V) bool { _, ok := taken[name]; return ok })
	return left
}

// RemoveFile deletes what a declaration file declared; a file that declared
// nothing is success.
func (s *Server) RemoveFile(ctx context.Context, path string) (Plan, error) {
	return s.declare(ctx, nil, func(w *world) []string { return w.fromSource(path) }, nil, false)
}

// Files returns the files that the declared state comes from, for finding
// those that went away while nobody watched.
func (s *Server) Files(ctx context.Context) ([]string, error) {
	w, err := s.world(ctx)
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
