package cli

import (
	"context"
	"encoding/json"
	"slices"
)

// WatchRows shows the present rows, then each set of rows of the film.
func (s *standIn) WatchRows(_ context.Context, kinds []string, fn func(string, json.RawMessage) error) error {
	if err := s.did("watch rows %v", kinds); err != nil {
		return err
	}
	typed := map[string]any{"machines": s.machines, "declarations": s.declarations, "images": s.images}
	for _, kind := range kinds {
		rows := json.RawMessage(s.rows[kind])
		if v, ok := typed[kind]; ok {
			rows, _ = json.Marshal(v)
		} else if len(rows) == 0 {
			rows = json.RawMessage("[]")
		}
		if err := fn(kind, rows); err != nil {
			return err
		}
	}
	for _, picture := range s.rowFilm {
		if slices.Contains(kinds, picture.kind) {
			if err := fn(picture.kind, json.RawMessage(picture.rows)); err != nil {
				return err
			}
		}
	}
	return errOver
}

// movingWorld is smallWorld with changing storage and images.
func movingWorld() *standIn {
	w := smallWorld()
	w.rows = storedWorld().rows
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
