package api

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
)

// protectedMux is a mux that puts the handlers that huma registers behind
// protect(). It refuses patterns that are not in the route table.
type protectedMux struct {
	*http.ServeMux
	s    *Server
	rows map[string]route
}

// HandleFunc mounts a handler behind the protection of its route.
func (m protectedMux) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	rt, ok := m.rows[pattern]
	if !ok {
		panic("api: " + pattern + " is not in the table of routes")
	}
	m.ServeMux.HandleFunc(pattern, m.s.protect(rt, h))
}

// table returns the route table, with /metrics if there is a Gatherer.
func (s *Server) table() []route {
	rows := s.routes()
	if g := s.o.Gatherer; g != nil {
		h := promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
		rows = append(rows, route{method: "GET", path: "/metrics", right: rightRead, summary: "Metrics for Prometheus", raw: h.ServeHTTP})
	}
	return rows
}

func (s *Server) newHandler() (http.Handler, error) {
	mux := http.NewServeMux()
	rows := map[string]route{}
	table := s.table()
	for _, rt := range table {
		key := rt.method + " " + rt.path
		if _, twice := rows[key]; twice || (rt.mount == nil) == (rt.raw == nil) {
			return nil, fmt.Errorf("cannot make the API: bad route %s", key)
		}
		rows[key] = rt
	}
	g := protectedMux{mux, s, rows}
	a := humago.New(g, s.humaConfig())
	schemas := a.OpenAPI().Components.Schemas
	limitTypes(schemas, reflect.TypeFor[client.AdoptRequest](), spec.TypeNames())
	limitTypes(schemas, reflect.TypeFor[client.ImageBuildRequest](), spec.TypeNames())
	for _, rt := range table {
		op := huma.Operation{
			Method: rt.method, Path: rt.path, Summary: rt.summary,
			Description:  "Needs the right to " + string(rt.right) + ".",
			OperationID:  operationID(rt),
			MaxBodyBytes: -1, BodyReadTimeout: -1, // protect() bounds both
		}
		if rt.once() {
			op.Parameters = append(op.Parameters, &huma.Param{
				Name: client.KeyHeader, In: "header", Required: true, Schema: &huma.Schema{Type: huma.TypeString, Pattern: keyForm.String()},
				Description: "A new key for each change; a repeated request with the same key has no second effect.",
			})
		}
		if rt.mount != nil {
			rt.mount(a, op)
			continue
		}
		describe(&op, rt, schemas)
		a.OpenAPI().AddOperation(&op)
		g.HandleFunc(rt.method+" "+rt.path, rt.raw)
	}
	// The document contains no data of the host, so all readers have the right
	// to read it.
	doc := route{method: "GET", path: "/openapi.json", right: rightRead}
	b, err := a.OpenAPI().MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("cannot write the OpenAPI document: %w", err)
	}
	mux.HandleFunc("GET /openapi.json", s.protect(doc, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b)
	}))
	return s.outer(mux), nil
}

// limitTypes limits the field "type" of a request to these names.
func limitTypes(schemas huma.Registry, request reflect.Type, names []string) {
	s := schemas.SchemaFromRef(schemas.Schema(request, true, "").Ref)
	for _, name := range names {
		s.Properties["type"].Enum = append(s.Properties["type"].Enum, name)
	}
	s.PrecomputeMessages()
}

// describe adds the parameters, body and answer of a raw route to its operation
// in the OpenAPI document.
func describe(op *huma.Operation, rt route, schemas huma.Registry) {
	op.Responses = map[string]*huma.Response{"200": {Description: "As in the summary."}}
	if rt.request != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/json": {Schema: schemas.Schema(rt.request, true, operationID(rt))},
		}}
	}
	if strings.Contains(rt.path, "{name}") {
		op.Parameters = []*huma.Param{{Name: "name", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}}
	}
}

func (s *Server) humaConfig() huma.Config {
	exact := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: raw.Unmarshal}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI:    "3.1.0",
			Info:       &huma.Info{Title: "hostler", Version: s.o.Version},
			Components: &huma.Components{Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName)},
		},
		Formats:                      map[string]huma.Format{"application/json": exact, "json": exact},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{plainProblem},
	}
}

// schemaName returns the name of a type's schema. It puts the package's name
// before types of other packages, so that names differ.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	pkg := t.PkgPath()
	pkg = pkg[strings.LastIndex(pkg, "/")+1:]
	if pkg == "" || pkg == "api" || pkg == "client" || pkg == "plan" {
		return name
	}
	return strings.ToUpper(pkg[:1]) + pkg[1:] + name
}

func operationID(rt route) string {
	clean := strings.NewReplacer("/v1/", "", "{", "", "}", "", "/", "-", ".", "-").Replace(rt.path)
	return strings.ToLower(rt.method) + "-" + strings.Trim(clean, "-")
}

// plainProblem converts huma's errors to problems with a kind. It leaves out
// the client's input, because the input may hold secrets.
func plainProblem(_ huma.Context, _ string, v any) (any, error) {
	em, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := raw.NewProblem(em.Status, client.KindOfStatus(em.Status), em.Detail)
	for _, e := range em.Errors {
		if e != nil {
			p.Errors = append(p.Errors, client.ProblemDetail{Message: e.Message, Location: e.Location})
		}
	}
	return p, nil
}
