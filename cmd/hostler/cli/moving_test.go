package cli

import (
	"context"
	"encoding/json"
	"slices"

	"hostler/agent/client"
	"hostler/internal/fault"
)

// WatchRows shows the present rows, then each set of machines of the film, then
// each set of rows of the other film.
func (s *standIn) WatchRows(ctx context.Context, kinds, machines []string, fn func(string, json.RawMessage) error) error {
	if err := s.did("watch rows %v of %v", kinds, machines); err != nil {
		return err
	}
	for _, kind := range kinds {
		if err := fn(kind, s.present(kind, machines)); err != nil {
			return err
		}
	}
	for slices.Contains(kinds, "machines") {
		if s.lost > 0 {
			if s.lost--; s.lost == 0 {
				return fault.New(fault.Transient, "lost the agent's answer")
			}
		}
		if len(s.film) == 0 {
			break
		}
		s.machines, s.film = s.film[0], s.film[1:]
		if err := fn("machines", s.present("machines", machines)); err != nil {
			return err
		}
	}
	for len(s.rowFilm) > 0 {
		picture := s.rowFilm[0]
		s.rowFilm = s.rowFilm[1:]
		if slices.Contains(kinds, picture.kind) {
			if err := fn(picture.kind, json.RawMessage(picture.rows)); err != nil {
				return err
			}
		}
	}
	if s.freeze {
		<-ctx.Done()
		return ctx.Err()
	}
	return errOver
}

// present returns the rows of a kind, of the named machines if there are names.
func (s *standIn) present(kind string, names []string) json.RawMessage {
	machines := s.machines
	if len(names) > 0 {
		machines = slices.DeleteFunc(slices.Clone(machines), func(m client.Machine) bool { return !slices.Contains(names, m.Name) })
	}
	if v, ok := map[string]any{"machines": machines, "declarations": s.declarations, "images": s.images}[kind]; ok {
		rows, _ := json.Marshal(v)
		return rows
	}
	if rows := s.rows[kind]; rows != "" {
		return json.RawMessage(rows)
	}
	return json.RawMessage("[]")
}

// movingHost is smallWorld with changing storage and images.
func movingHost() *standIn {
	w := smallHost()
	w.rows = storedHost().rows
	w.rowFilm = []struct{ kind, rows string }{
		{"volumes", `[{"name":"data","provider":"loop","size":1073741824,"status":"detached","device":"","attachments":[],"message":"","life":"dying"},
			{"name":"raw","provider":"loop","size":67108864,"status":"attached","device":"/dev/loop4","path":"","observed":true,
			"attachments":[{"machine":"web","status":"attached","source":"/dev/loop4","read-only":false,"message":""}],"message":""}]`},
		{"volumes", `[{"name":"raw","provider":"loop","size":67108864,"status":"attached","device":"/dev/loop4","path":"","observed":true,
			"attachments":[{"machine":"web","status":"attached","source":"/dev/loop4","read-only":false,"message":""}],"message":"<ready> & used"}]`},
		{"declarations", "[]"},
		{"images", "[]"},
	}
	return w
}
