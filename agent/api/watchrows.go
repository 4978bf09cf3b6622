package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// pollPause is the time between two readings of rows whose changes cause no
// events.
const pollPause = 2 * time.Second

// lookPause is the minimum time between two readings of all machines. The
// creation of a hundred machines causes many hundred changes.
const lookPause = 100 * time.Millisecond

// rowSource describes how to read the rows of a kind.
type rowSource struct {
	// stored are the kinds of the objects from which the rows are made. If
	// empty, the rows come from the host and are polled.
	stored []string
	read   func(context.Context) (any, error)
}

// rowSources maps the kinds of rows, in the plural as in the API's paths, to
// their sources. If names is not empty, the rows of machines are limited to
// these names.
func (s *Server) rowSources(names []string) map[string]rowSource {
	return map[string]rowSource{
		"machines":      {[]string{spec.KindMachine}, func(ctx context.Context) (any, error) { return s.presentRows(ctx, names) }},
		"volumes":       {[]string{spec.KindVolume}, reader(rowsOf(s, spec.KindVolume, volumeRow))},
		"filesystems":   {[]string{spec.KindFilesystem}, reader(rowsOf(s, spec.KindFilesystem, filesystemRow))},
		"networks":      {[]string{spec.KindNetwork}, reader(rowsOf(s, spec.KindNetwork, networkRow))},
		"declarations":  {[]string{spec.KindDeclaration}, reader(s.declarations)},
		"attachments":   {[]string{spec.KindFilesystem, spec.KindMachine, spec.KindVolume}, reader(s.attachments)},
		"images":        {nil, s.imageRows},
		"block-devices": {nil, reader(s.blockDevices)},
	}
}

// reader returns a function that calls a handler without input and returns the
// body of its answer.
func reader[T any](handler func(context.Context, *struct{}) (*out[T], error)) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		o, err := handler(ctx, nil)
		if err != nil {
			return nil, err
		}
		return o.Body, nil
	}
}

// errPart is the error of a read that returns only a part of the rows.
var errPart = errors.New("not all rows can be read")

func (s *Server) imageRows(ctx context.Context) (any, error) {
	o, err := s.images(ctx, nil)
	if err != nil {
		return nil, err
	}
	if len(o.Notices) > 0 {
		return o.Body, errPart
	}
	return o.Body, nil
}

// watchRows sends all rows of the requested kinds. After each change of a row
// it sends all rows of the same kind again.
func (s *Server) watchRows(w http.ResponseWriter, r *http.Request) {
	l := raw.NewLines(w)
	q, err := raw.Query(r, "kind", "name")
	if err != nil {
		l.Fail(err)
		return
	}
	var kinds []string // without duplicates, since every change reads the rows of each
	sources := s.rowSources(q["name"])
	for _, kind := range q["kind"] {
		if _, ok := sources[kind]; !ok {
			l.Fail(fault.New(fault.Invalid, "there are no rows of the kind %q; kinds are %s", fault.Clip(kind, 32), strings.Join(slices.Sorted(maps.Keys(sources)), ", ")))
			return
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		l.Fail(fault.New(fault.Invalid, "cannot watch: no kind is named"))
		return
	}
	changes, err := s.rowChanges(r.Context(), kinds, sources)
	if err != nil {
		l.Fail(err)
		return
	}
	last := map[string][]byte{}
	look := func(kinds []string) error {
		for _, kind := range kinds {
			rows, err := sources[kind].read(r.Context())
			switch part := errors.Is(err, errPart); {
			case part && last[kind] != nil:
				continue // keep the last rows, since unreadable rows are not gone
			case err != nil && !part:
				return err
			}
			b, err := json.Marshal(rows)
			if err != nil {
				return err
			}
			if bytes.Equal(b, last[kind]) {
				continue
			}
			last[kind] = b
			if err := l.Send(client.Line{Rows: &client.Rows{Kind: kind, Rows: b}}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := look(kinds); err != nil {
		l.Fail(err)
		return
	}
	raw.Follow(r.Context(), s.streamOptions(), l, changes, lookPause, look)
}

// rowChanges returns a channel of kinds whose rows must be read again. The
// channel is closed when ctx ends or the store's watch is lost.
func (s *Server) rowChanges(ctx context.Context, kinds []string, sources map[string]rowSource) (<-chan []string, error) {
	var watched, polled, stored []string
	for _, kind := range kinds {
		if objects := sources[kind].stored; len(objects) > 0 {
			watched, stored = append(watched, kind), append(stored, objects...)
		} else {
			polled = append(polled, kind)
		}
	}
	slices.Sort(stored)
	// A nil channel never becomes ready, so without polled kinds the loop does
	// not poll.
	var poll <-chan time.Time
	stop := func() {}
	if len(polled) > 0 {
		t := time.NewTicker(pollPause)
		poll, stop = t.C, t.Stop
	}
	var changes <-chan []state.ID
	if len(stored) > 0 {
		var err error
		if changes, err = s.o.Backend.Watch(ctx, slices.Compact(stored)...); err != nil {
			stop()
			return nil, err
		}
	}
	again := make(chan []string)
	go func() {
		defer close(again)
		defer stop()
		for {
			look := polled
			select {
			case <-ctx.Done():
				return
			case _, ok := <-changes:
				if !ok {
					return
				}
				look = watched
			case <-poll:
			}
			select {
			case again <- look:
			case <-ctx.Done():
				return
			}
		}
	}()
	return again, nil
}
