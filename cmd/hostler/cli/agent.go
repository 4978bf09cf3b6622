package cli

import (
	"context"
	"encoding/json"
	"io"

	"hostler/agent/api"
	"hostler/agent/spec"
)

// Agent is the part of the API's client that the commands use. Errors carry
// kinds of package fault.
type Agent interface {
	rowReader
	objectReader
	declarer
	watcher
	operator
	host
	guest
	imageKeeper
}

type rowReader interface {
	Machines(ctx context.Context, names ...string) ([]api.Machine, error)
	Declarations(ctx context.Context) ([]api.Declaration, error)
	Images(ctx context.Context) (rows []api.Image, notices []string, err error)
	Get(ctx context.Context, kind string) (json.RawMessage, error)
}

type objectReader interface {
	Show(ctx context.Context, kind, name string) (api.Object, error)
	Events(ctx context.Context, after int64, object string, limit int) ([]api.Event, error)
}

type declarer interface {
	Plan(ctx context.Context, req api.ApplyRequest) (api.Plan, error)
	Apply(ctx context.Context, req api.ApplyRequest) (api.Plan, error)
	Delete(ctx context.Context, objects []string) ([]api.Outcome, error)
	Allow(ctx context.Context, impact string, objects []string) ([]api.Outcome, error)
	Export(ctx context.Context, declaration string) (text []byte, missing []string, err error)
}

type watcher interface {
	WatchMachines(ctx context.Context, names []string, fn func([]api.Machine) error) error
	WatchRows(ctx context.Context, kinds []string, fn func(kind string, rows json.RawMessage) error) error
	WatchEvents(ctx context.Context, after int64, object string, fn func(api.Event) error) error
}

type operator interface {
	Power(ctx context.Context, machine, action string) error
	Retry(ctx context.Context, object string, force bool) error
	ResizeVolume(ctx context.Context, name, size string) error
	Adopt(ctx context.Context, containerType, instance string) (api.Machine, error)
	Release(ctx context.Context, machine string) error
}

type host interface {
	Status(ctx context.Context) (api.Status, error)
	Doctor(ctx context.Context) ([]api.Check, error)
	Version(ctx context.Context) (api.Version, error)
	Harvest(ctx context.Context) (api.Harvest, error)
	SetHarvest(ctx context.Context, mode string) (api.Harvest, error)
	Confirm(ctx context.Context) (object string, err error)
	Revert(ctx context.Context) (object string, err error)
}

type guest interface {
	Exec(ctx context.Context, machine string, o api.ExecOptions) (int, error)
	Console(ctx context.Context, machine string, rw io.ReadWriter) error
	Logs(ctx context.Context, machine string, o api.LogOptions) (io.ReadCloser, error)
}

type imageKeeper interface {
	ImageImport(ctx context.Context, path, reference, digest string, progress func(string, int)) (api.Image, error)
	ImageBuild(ctx context.Context, reference string, t spec.ContainerType, progress func(string, int)) (api.Image, error)
	ImageDelete(ctx context.Context, reference string) error
}

var _ Agent = (*api.Client)(nil)
