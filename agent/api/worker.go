package api

import (
	"net/http"
	"reflect"
	"strconv"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// maxWorkerBody bounds a worker's request: the statuses of some thousand
// machines.
const maxWorkerBody = 16 << 20

// workerRoutes are the routes to the store and the facade for workers in
// processes of their own.
func (s *Server) workerRoutes() []route {
	rows := []route{
		{method: "GET", path: "objects", summary: "The objects that a worker may see", raw: worker(s, (*workerCall).list)},
		{method: "POST", path: "get", summary: "Some objects by name", raw: worker(s, (*workerCall).get)},
		{method: "POST", path: "write", summary: "Change objects", raw: worker(s, (*workerCall).write)},
		{method: "GET", path: "watch", summary: "The names of objects as they change, a line each time", raw: worker(s, (*workerCall).watch), stream: true},
		{method: "GET", path: "intents", summary: "The open intents", raw: worker(s, (*workerCall).intents)},
		{method: "POST", path: "intents/begin", summary: "Write intents down", raw: worker(s, (*workerCall).begin)},
		{method: "POST", path: "intents/end", summary: "Forget intents", raw: worker(s, (*workerCall).end)},
		{method: "GET", path: "events", summary: "What happened to the machines", raw: worker(s, (*workerCall).events)},
		{method: "POST", path: "events/record", summary: "Tell what happened", raw: worker(s, (*workerCall).record)},
		{method: "GET", path: "events/watch", summary: "A line whenever there are new events", raw: worker(s, (*workerCall).watchEvents), stream: true},
		{method: "GET", path: "config", summary: "The host's configuration", raw: worker(s, (*workerCall).config)},
		{method: "GET", path: "supported", summary: "The container types that the host can run", raw: worker(s, (*workerCall).supported)},
		{method: "POST", path: "supported", summary: "Declare the container types that the host can run", raw: worker(s, (*workerCall).setSupported)},
		{method: "GET", path: "transient", summary: "The machines whose error may go away by itself", raw: worker(s, (*workerCall).transient)},
		{method: "POST", path: "keep", summary: "Which machines' instances survive their record", raw: worker(s, (*workerCall).keep)},
		{method: "POST", path: "host-changes", summary: "What machines need of the host's networks", raw: worker(s, (*workerCall).hostChanges)},
		{method: "POST", path: "counts", summary: "Tell which passes and operations there were", raw: worker(s, (*workerCall).counts), body: maxBody},
		{method: "POST", path: "images/ensure", summary: "Make an image usable for the type", raw: worker(s, (*workerCall).ensureImage), request: reflect.TypeFor[client.ImageRequest](), stream: true},
	}
	for i := range rows {
		rows[i].path = "/v1/worker/{type}/" + rows[i].path
		rows[i].right, rows[i].quiet = rightWorker, true
		if rows[i].body == 0 {
			rows[i].body = maxWorkerBody
		}
	}
	return rows
}

// workerCall is a request of a worker.
type workerCall struct {
	s *Server
	w http.ResponseWriter
	r *http.Request
	// t is empty for all types.
	t     spec.ContainerType
	store state.Backend
}

// worker turns a method into a handler. It allows the caller's own type (or all
// types for admins) and answers errors as problems.
func worker(s *Server, answer func(*workerCall) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := workerCall{s: s, w: w, r: r, store: s.o.Backend}
		who, t := callerFrom(r.Context()), r.PathValue("type")
		if who.role == roleWorker && who.containerType != "" && string(who.containerType) != t {
			writeProblem(w, forbidden)
			return
		}
		switch spec.ContainerType(t) {
		case AllTypes:
		case spec.LXD, spec.KVM, spec.LXC:
			c.t = spec.ContainerType(t)
			c.store = restrict(s.o.Backend, c.t)
		default:
			writeProblem(w, newProblem(http.StatusNotFound, fault.NotFound, "there is no such container type"))
			return
		}
		if err := answer(&c); err != nil {
			writeProblem(w, problemOf(err))
		}
	}
}

// list answers only when the type's records are complete: to the worker, an
// instance without a record would be an orphan, which it may remove.
func (c *workerCall) list() error {
	q, err := strictQuery(c.r, "kind")
	if err != nil {
		return err
	}
	if learned := c.s.o.Learned; learned != nil && c.t != "" {
		if err := learned(c.r.Context(), c.t); err != nil {
			return err
		}
	}
	objects, revision, err := c.store.List(c.r.Context(), q["kind"]...)
	if err == nil {
		answer(c.w, WorkerObjects{revision, objects})
	}
	return err
}

func (c *workerCall) get() error {
	var in WorkerNames
	if err := decodeBody(c.r, &in); err != nil {
		return err
	}
	out := WorkerResults{Results: make([]WorkerResult, len(in.IDs))}
	for i, id := range in.IDs {
		out.Results[i] = resultOf(c.store.Get(c.r.Context(), id))
	}
	answer(c.w, out)
	return nil
}

func (c *workerCall) write() error {
	var in WorkerWrites
	if err := decodeBody(c.r, &in); err != nil {
		return err
	}
	results, err := c.store.Write(c.r.Context(), in.Mode, in.Writes...)
	if err != nil {
		return err
	}
	out := WorkerResults{Results: make([]WorkerResult, len(results))}
	for i, r := range results {
		out.Results[i] = resultOf(r.Object, r.Err)
	}
	answer(c.w, out)
	return nil
}

func (c *workerCall) intents() error {
	intents, err := c.store.Intents(c.r.Context())
	if err == nil {
		answer(c.w, WorkerIntents{intents})
	}
	return err
}

func (c *workerCall) begin() error {
	var in WorkerIntents
	if err := decodeBody(c.r, &in); err != nil {
		return err
	}
	out := WorkerResults{Results: make([]WorkerResult, len(in.Intents))}
	for i, intent := range in.Intents {
		if err := c.store.Begin(c.r.Context(), intent); err != nil {
			out.Results[i] = resultOf(state.Object{}, err)
		}
	}
	answer(c.w, out)
	return nil
}

func (c *workerCall) end() error {
	var in WorkerTokens
	if err := decodeBody(c.r, &in); err != nil {
		return err
	}
	err := c.store.End(c.r.Context(), in.Tokens...)
	if err == nil {
		answer(c.w, struct{}{})
	}
	return err
}

func (c *workerCall) record() error {
	var in WorkerEvents
	if err := decodeBody(c.r, &in); err != nil {
		return err
	}
	out := WorkerResults{Results: make([]WorkerResult, len(in.Events))}
	allowed := in.Events
	if own, ok := c.store.(*restricted); ok {
		allowed = nil
		for i, e := range in.Events {
			if err := own.mayRecord(c.r.Context(), e); err != nil {
				out.Results[i] = resultOf(state.Object{}, err)
				continue
			}
			allowed = append(allowed, e)
		}
	}
	if err := c.s.o.Backend.Record(c.r.Context(), allowed...); err != nil {
		return err
	}
	answer(c.w, out)
	return nil
}

func (c *workerCall) events() error {
	q, err := strictQuery(c.r, "after", "kind", "name", "limit")
	if err != nil {
		return err
	}
	var query state.EventQuery
	if q.Has("kind") {
		query.Object = &state.ID{Kind: q.Get("kind"), Name: q.Get("name")}
	}
	var limit int64
	for name, to := range map[string]*int64{"after": &query.After, "limit": &limit} {
		if text := q.Get(name); text != "" {
			if *to, err = strconv.ParseInt(text, 10, 64); err != nil || *to < 0 {
				return fault.New(fault.Invalid, "the query parameter %s is not a number", name)
			}
		}
	}
	query.Limit = int(min(limit, 10_000))
	events, err := c.store.Events(c.r.Context(), query)
	if err == nil {
		answer(c.w, WorkerEvents{events})
	}
	return err
}

func (c *workerCall) watch() error {
	q, err := strictQuery(c.r, "kind")
	if err != nil {
		return err
	}
	batches, err := c.store.Watch(c.r.Context(), q["kind"]...)
	if err != nil {
		return err
	}
	pass(c, batches, func(ids []state.ID) workerLine { return workerLine{IDs: &ids} })
	return nil
}

func (c *workerCall) watchEvents() error {
	signs, err := c.store.WatchEvents(c.r.Context())
	if err != nil {
		return err
	}
	pass(c, signs, func(struct{}) workerLine { return workerLine{Events: true} })
	return nil
}

// pass sends a line for each value and heartbeats in between. A worker whose
// stream ends without a problem takes its watch for lost.
func pass[T any](c *workerCall, from <-chan T, line func(T) workerLine) {
	l := newLines(c.w)
	beat := time.NewTicker(c.s.o.Heartbeat)
	defer beat.Stop()
	// The first line at once confirms that the agent serves the stream.
	err := l.send(workerLine{})
	for err == nil {
		select {
		case v, ok := <-from:
			if ok {
				err = l.send(line(v))
			} else {
				err = c.s.ended()
			}
		case <-beat.C:
			err = l.send(workerLine{})
		case <-c.r.Context().Done():
			err = c.s.ended()
		}
	}
	l.fail(err)
}
