package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

func (s *Server) watchEvents(w http.ResponseWriter, r *http.Request) {
	l := raw.NewLines(w)
	q, err := watchQuery(r)
	if err != nil {
		l.Fail(err)
		return
	}
	signals, err := s.o.Backend.WatchEvents(r.Context())
	if err != nil {
		l.Fail(err)
		return
	}
	look := func(struct{}) error { return s.sendEvents(r.Context(), l, &q) }
	if err := l.Send(client.Line{}); err != nil {
		return
	}
	if err := look(struct{}{}); err != nil {
		l.Fail(err)
		return
	}
	raw.Follow(r.Context(), s.streamOptions(), l, signals, 0, look)
}

// sendEvents sends all events after q.After and sets q.After to the last of
// them.
func (s *Server) sendEvents(ctx context.Context, l *raw.Lines, q *state.EventQuery) error {
	for {
		events, err := s.o.Backend.Events(ctx, *q)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, e := range events {
			row := eventRow(e)
			if err := l.Send(client.Line{Event: &row}); err != nil {
				return err
			}
			q.After = e.Seq
		}
	}
}

func (s *Server) importImage(w http.ResponseWriter, r *http.Request) {
	var req client.ImageImportRequest
	s.imageWork(w, r, &req, func(ctx context.Context, report func(client.Progress)) (client.Image, error) {
		if len(req.Path) == 0 || req.Path[0] != '/' || req.Reference == "" {
			return client.Image{}, fault.New(fault.Invalid, "cannot import an image: an absolute path and a reference are needed")
		}
		return s.o.Service.Builder.Import(ctx, req.Path, req.Reference, req.Digest, report)
	})
}

func (s *Server) buildImage(w http.ResponseWriter, r *http.Request) {
	var req client.ImageBuildRequest
	s.imageWork(w, r, &req, func(ctx context.Context, report func(client.Progress)) (client.Image, error) {
		switch {
		case req.Reference == "":
			return client.Image{}, fault.New(fault.Invalid, "cannot build an image: a reference is needed")
		case req.Type == "":
			req.Type = spec.ContainerTypes()[0].Type
		case !slices.Contains(spec.TypeNames(), string(req.Type)):
			return client.Image{}, fault.New(fault.Invalid, "cannot build an image for type %q: it is neither %s", fault.Clip(string(req.Type), 32), strings.Join(spec.TypeNames(), " nor "))
		}
		return s.o.Service.Builder.Build(ctx, req.Type, req.Reference, report)
	})
}

// streamOptions returns the settings of streams.
func (s *Server) streamOptions() raw.Streams {
	return raw.Streams{Heartbeat: s.o.Heartbeat, Stop: s.stop}
}

// imageWork runs work, which makes an image, and sends its progress. Then it
// requests new attempts for machines that lacked the image.
func (s *Server) imageWork(w http.ResponseWriter, r *http.Request, req any, work func(context.Context, func(client.Progress)) (client.Image, error)) {
	s.streamOptions().ImageWork(w, r, req, func(ctx context.Context, report func(client.Progress)) (client.Image, error) {
		img, err := work(ctx, report)
		if err == nil {
			s.imageCame(ctx, img.Reference)
		}
		return img, err
	})
}
