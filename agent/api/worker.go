package api

import (
	"context"
	"net/http"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/workerapi"
)

// workerRoutes returns the routes for workers in separate processes. A worker
// has the right to its own container type, an admin to all types.
func (s *Server) workerRoutes() (rows []route) {
	h := workerapi.NewHandlers(workerapi.Options{
		Backend: s.o.Backend, Count: s.o.Count, Ensure: s.ensureImage, Streams: s.streamOptions(),
	})
	for _, rt := range h.Routes() {
		rows = append(rows, route{
			method: rt.Method, path: rt.Path, right: rightWorker, summary: rt.Summary, request: rt.Request, body: rt.Body, stream: rt.Stream, quiet: true,
			raw: func(w http.ResponseWriter, r *http.Request) {
				who := callerFrom(r.Context())
				if who.role == roleWorker && who.containerType != "" && string(who.containerType) != r.PathValue("type") {
					raw.WriteProblem(w, forbidden)
					return
				}
				rt.Handle(w, r)
			},
		})
	}
	return rows
}

// ensureImage makes an image usable for a container type.
func (s *Server) ensureImage(ctx context.Context, t spec.ContainerType, reference string, report func(client.Progress)) (string, error) {
	return s.o.Service.Builder.Ensure(ctx, t, reference, report)
}
