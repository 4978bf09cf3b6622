package conffiles

import (
	"cmp"
	"maps"
	"slices"

	"hostler/agent/declare"
)

// decision is the outcome of a reading of the folder.
type decision struct {
	// stamps holds the result of stampsOf() from before the reading.
	stamps map[string]string
	// whole is false while another process writes a file of the folder.
	whole   bool
	refused []declare.RefusedFile
}

// decide notes the outcome of a reading and wakes everyone who waits for News().
func (d *Declarations) decide(made decision) {
	slices.SortFunc(made.refused, func(a, b declare.RefusedFile) int { return cmp.Compare(a.Path, b.Path) })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.decided = &made
	close(d.news)
	d.news = make(chan struct{})
}

// News returns a channel that is closed after the next reading of the folder.
func (d *Declarations) News() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.news
}

// State says whether the files of the folder, in their present form, were read,
// and which of them are not in force.
func (d *Declarations) State() declare.FolderState {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := declare.FolderState{Path: d.o.Dir}
	if d.decided != nil {
		state.Refused = append(state.Refused, d.decided.refused...)
		state.Read = d.decided.whole && maps.Equal(d.decided.stamps, stampsOf(d.o.Dir))
	}
	return state
}
