package api

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"hostler/agent/client"
	"hostler/agent/declare"
)

// countingFolder is a folder with as many readings as its test announces.
type countingFolder struct {
	mu    sync.Mutex
	state declare.FolderState
	news  chan struct{}
}

func (f *countingFolder) State() declare.FolderState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

func (f *countingFolder) News() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.news
}

func (f *countingFolder) read(s declare.FolderState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = s
	close(f.news)
	f.news = make(chan struct{})
}

// A watch of the folder shows its state, and each later state after a reading.
func TestWatchFolder(t *testing.T) {
	f := &countingFolder{state: declare.FolderState{Path: "/etc/hostler/conf.d"}, news: make(chan struct{})}
	b := newBench(t, func(o *Options) { o.Folder = f })
	c := b.listen(t)
	enough := errors.New("enough")
	next := []declare.FolderState{
		{Path: f.state.Path, Read: true, Refused: []declare.RefusedFile{{Path: "/etc/hostler/conf.d/web.yaml", Reason: "no", Retried: true}}},
		{Path: f.state.Path, Read: true},
	}
	var seen []bool
	err := c.WatchFolder(t.Context(), func(s client.FolderState) error {
		seen = append(seen, s.Read && len(s.Refused) == 0)
		if len(next) == 0 {
			return enough
		}
		f.read(next[0])
		next = next[1:]
		return nil
	})
	if !errors.Is(err, enough) || !slices.Equal(seen, []bool{false, false, true}) {
		t.Errorf("%v, %v", seen, err)
	}
}

// An agent without declaration files has read all of them.
func TestWatchOfNoFolder(t *testing.T) {
	b := newBench(t)
	var seen []client.FolderState
	if err := b.listen(t).WatchFolder(t.Context(), func(s client.FolderState) error { seen = append(seen, s); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 1 || !seen[0].Read {
		t.Errorf("%+v", seen)
	}
}
