package cli

import (
	"context"
	"encoding/json"
	"io"

	"hostler/agent/client"
	"hostler/agent/spec"
)

// agent is the part of the API's client that the commands use. Errors have
// kinds of package fault.
type agent interface {
	rowReader
	objectReader
	declarer
	watcher
	operator
	host
	guestClient
	imageKeeper
}

type rowReader interface {
	Machines(ctx context.Context, names ...string) ([]client.Machine, error)
	Declarations(ctx context.Context) ([]client.Declaration, error)
	Images(ctx context.Context) (rows []client.Image, notices []string, err error)
	Get(ctx context.Context, kind string) (json.RawMessage, error)
}

type objectReader interface {
	Show(ctx context.Context, kind, name string) (client.Object, error)
	Events(ctx context.Context, after int64, object string, limit int) ([]client.Event, error)
}

type declarer interface {
	Plan(ctx context.Context, req client.ApplyRequest) (client.Plan, error)
	Apply(ctx context.Context, req client.ApplyRequest) (client.Plan, error)
	Delete(ctx context.Context, objects []string) ([]client.Outcome, error)
	Allow(ctx context.Context, impact string, objects []string) ([]client.Outcome, error)
	Export(ctx context.Context, declaration string) (text []byte, missing []string, err error)
}

type watcher interface {
	WatchRows(ctx context.Context, kinds, machines []string, fn func(kind string, rows json.RawMessage) error) error
	WatchFolder(ctx context.Context, fn func(client.FolderState) error) error
	WatchEvents(ctx context.Context, after int64, object string, fn func(client.Event) error) error
}

type operator interface {
	Power(ctx context.Context, machine, action string) error
	Retry(ctx context.Context, object string, force bool) error
	ResizeVolume(ctx context.Context, name, size string) error
	Adopt(ctx context.Context, containerType, instance string) (client.Machine, error)
	AdoptHost(ctx context.Context) error
	Release(ctx context.Context, machine string) error
	Migrate(ctx context.Context, from, to string, machines []string, dryRun bool) ([]client.MigrationStep, error)
}

type host interface {
	Status(ctx context.Context) (client.Status, error)
	Doctor(ctx context.Context) ([]client.Check, error)
	Version(ctx context.Context) (client.Version, error)
	Harvest(ctx context.Context) (client.Harvest, error)
	SetHarvest(ctx context.Context, mode string) (client.Harvest, error)
	Confirm(ctx context.Context) (object string, err error)
	Revert(ctx context.Context) (object string, err error)
}

type guestClient interface {
	Exec(ctx context.Context, machine string, o client.ExecOptions) (int, error)
	Console(ctx context.Context, machine string, rw io.ReadWriter) error
	Logs(ctx context.Context, machine string, o client.LogOptions) (io.ReadCloser, error)
}

type imageKeeper interface {
	ImageImport(ctx context.Context, path, reference, digest string, progress func(string, int)) (client.Image, error)
	ImageBuild(ctx context.Context, reference string, t spec.ContainerType, progress func(string, int)) (client.Image, error)
	ImageDelete(ctx context.Context, reference string) error
}

var _ agent = (*client.Client)(nil)
