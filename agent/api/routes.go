package api

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
)

// route is a row of the route table. It has either mount or raw.
type route struct {
	method, path string
	right        right
	summary      string
	// mount registers a typed handler; see typed.
	mount func(huma.API, huma.Operation)
	// raw is a handler for streams and upgrades.
	raw http.HandlerFunc
	// request is the body's type of a raw route, for the OpenAPI document.
	request reflect.Type
	// body bounds the request's body in bytes. 0 means maxBody.
	body int64
	// answerLimit bounds the time of an answer. 0 means answerTimeout.
	answerLimit time.Duration
	// costly is true if the agent answers only a few such requests of a caller at
	// the same time. paged is true if this applies only to readers, whose
	// requests wait for their turn.
	costly, paged bool
	// stream is true for routes without a deadline. The number of open streams
	// is limited.
	stream bool
	// quiet is true if changes are logged at debug level, e.g. the frequent
	// writes of workers.
	quiet bool
}

// in and out are the input and output of typed handlers with a JSON body.
type in[T any] struct{ Body T }

type out[T any] struct{ Body T }

// answer returns body as an output, or the error.
func answer[T any](body T, err error) (*out[T], error) {
	if err != nil {
		return nil, err
	}
	return &out[T]{body}, nil
}

// named is an input with a name in the path.
type named struct {
	Name string `path:"name" maxLength:"253"`
}

// typed returns the mount function of a typed handler. The route answers errors
// as problems of the same kind.
func typed[I, O any](handler func(context.Context, *I) (*O, error)) func(huma.API, huma.Operation) {
	return func(a huma.API, op huma.Operation) {
		huma.Register(a, op, func(ctx context.Context, i *I) (*O, error) {
			o, err := handler(ctx, i)
			if err != nil {
				return nil, raw.ProblemOf(err)
			}
			return o, nil
		})
	}
}

// slow is the answerLimit of routes that observe the whole host.
const slow = 3 * time.Minute

// routes returns the route table.
func (s *Server) routes() []route {
	rows := []route{
		{method: "GET", path: "/v1/version", right: rightRead, summary: "The agent's version", mount: typed(s.version)},
		{method: "GET", path: "/v1/status", right: rightRead, summary: "The host at a glance", mount: typed(s.status)},
		{method: "GET", path: "/v1/doctor", right: rightRead, summary: "Container types of this host, and their obstacles", mount: typed(s.doctor), answerLimit: slow},
		{method: "POST", path: "/v1/plan", right: rightRead, summary: "Steps that applying documents would take", mount: typed(s.plan), body: maxApplyBody, costly: true},
		{method: "POST", path: "/v1/apply", right: rightChange, summary: "Make documents the declared state", mount: typed(s.apply), body: maxApplyBody},
		{method: "POST", path: "/v1/allow", right: rightChange, summary: "Consent to held steps", mount: typed(s.allowed)},
		{method: "POST", path: "/v1/delete", right: rightChange, summary: "Remove objects from the declared state", mount: typed(s.remove)},
		{method: "GET", path: "/v1/machines", right: rightRead, summary: "The machines", mount: typed(s.machines)},
		{method: "GET", path: "/v1/declarations", right: rightRead, summary: "The declarations", mount: typed(s.declarations)},
		{method: "GET", path: "/v1/images", right: rightRead, summary: "The images", mount: typed(s.images)},
		{method: "GET", path: "/v1/images/available", right: rightRead, summary: "The images that can be built", mount: typed(s.availableImages)},
		{method: "GET", path: "/v1/volumes", right: rightRead, summary: "The volumes", mount: typed(rowsOf(s, spec.KindVolume, volumeRow))},
		{method: "GET", path: "/v1/filesystems", right: rightRead, summary: "The filesystems", mount: typed(rowsOf(s, spec.KindFilesystem, filesystemRow))},
		{method: "GET", path: "/v1/attachments", right: rightRead, summary: "Attachments of volumes and filesystems to machines", mount: typed(s.attachments)},
		{method: "GET", path: "/v1/block-devices", right: rightRead, summary: "The block devices of this host", mount: typed(s.blockDevices)},
		{method: "POST", path: "/v1/volumes/{name}/resize", right: rightChange, summary: "Make a volume larger", mount: typed(s.resizeVolume)},
		{method: "GET", path: "/v1/networks", right: rightRead, summary: "The networks", mount: typed(rowsOf(s, spec.KindNetwork, networkRow))},
		{method: "GET", path: "/v1/objects/{kind}/{name}", right: rightRead, summary: "All details of an object", mount: typed(s.show)},
		{method: "GET", path: "/v1/events", right: rightRead, summary: "What happened", mount: typed(s.events), paged: true},
		{method: "GET", path: "/v1/watch/rows", right: rightRead, summary: "The rows of kinds, and those of a kind after every change, a line each time", raw: s.watchRows, stream: true},
		{method: "GET", path: "/v1/watch/folder", right: rightRead, summary: "The state of conf.d after every reading, a line each time", raw: s.watchFolder, stream: true},
		{method: "GET", path: "/v1/watch/events", right: rightRead, summary: "Events as they occur, one per line", raw: s.watchEvents, stream: true},
		{method: "POST", path: "/v1/machines/{name}/power", right: rightChange, summary: "Start, stop or restart a machine", mount: typed(s.power)},
		{method: "POST", path: "/v1/machines/{name}/release", right: rightChange, summary: "Let a machine's instance go", mount: typed(s.release)},
		{method: "POST", path: "/v1/machines/{name}/exec", right: rightChange, summary: "Run a command in a machine", raw: s.exec, request: reflect.TypeFor[client.ExecRequest](), stream: true},
		{method: "POST", path: "/v1/machines/{name}/console", right: rightChange, summary: "Join a machine's console", raw: s.console, request: reflect.TypeFor[struct{}](), stream: true},
		{method: "GET", path: "/v1/machines/{name}/log", right: rightConsole, summary: "A machine's console log", raw: s.guestLog, stream: true},
		{method: "POST", path: "/v1/retry", right: rightChange, summary: "Clear an error and retry immediately", mount: typed(s.retry)},
		{method: "POST", path: "/v1/migrate", right: rightChange, summary: "Move machines to another container type", mount: typed(s.migrate), answerLimit: slow},
		{method: "POST", path: "/v1/adopt", right: rightChange, summary: "Take an instance over", mount: typed(s.adopt), answerLimit: slow},
		{method: "POST", path: "/v1/adopt-host", right: rightChange, summary: "Make a store that was copied from another host this host's", mount: typed(s.adoptHost)},
		{method: "GET", path: "/v1/export", right: rightChange, summary: "The YAML of all objects and instances, secrets included", raw: s.export, answerLimit: slow},
		{method: "POST", path: "/v1/guard/confirm", right: rightChange, summary: "Keep the change of the host's own network that waits for it", mount: typed(s.confirm)},
		{method: "POST", path: "/v1/guard/revert", right: rightChange, summary: "Revert the armed change of the host's own network", mount: typed(s.revert)},
		{method: "GET", path: "/v1/harvest", right: rightRead, summary: "The harvest mode", mount: typed(s.harvest)},
		{method: "PUT", path: "/v1/harvest", right: rightChange, summary: "Override the harvest mode", mount: typed(s.setHarvest)},
		{method: "POST", path: "/v1/images/import", right: rightChange, summary: "Take a file into the image cache", raw: s.importImage, request: reflect.TypeFor[client.ImageImportRequest](), stream: true},
		{method: "POST", path: "/v1/images/build", right: rightChange, summary: "Build an image", raw: s.buildImage, request: reflect.TypeFor[client.ImageBuildRequest](), stream: true},
		{method: "POST", path: "/v1/images/delete", right: rightChange, summary: "Delete an image", mount: typed(s.deleteImage), answerLimit: slow},
	}
	return append(rows, s.workerRoutes()...)
}
