package api

import (
	"context"
	"io"
	"time"

	"hostler/agent/client"
	"hostler/agent/client/frames"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
)

// Service provides everything that the API cannot answer from the store alone.
// All parts are safe for concurrent use.
type Service struct {
	Planner  Planner
	Guests   Guests
	Images   Images
	Builder  ImageBuilder
	Host     Host
	Adopter  Adopter
	Exporter Exporter
	Guard    Guard
}

// Planner predicts the effects of carrying out the declared state. It gets all
// planned objects, including those being removed: networks and storage, then
// machines, each sorted by name. It observes the host but changes nothing.
type Planner interface {
	// Plan returns the steps in the order in which the workers take them; an
	// object that matches its declaration has none. Step.Held says that a step
	// waits for the user's consent. scope holds the KIND/NAMEs in question:
	// hypervisors without a machine in scope are not observed, and steps of
	// objects outside scope may be missing.
	Plan(ctx context.Context, objects []declare.Planned, scope map[string]bool) ([]client.Step, error)
	// Refuse returns an error for new and changed objects that cannot exist on
	// this host, e.g. a subnet that the host reaches another way or a port that is
	// in use. A failure to find out is not an error.
	Refuse(ctx context.Context, objects []declare.Planned) error
}

// Warner is a Planner that also predicts failures shortly after acceptance,
// e.g. an image that does not exist or more memory than the host has. It omits
// failures that take long to detect.
type Warner interface {
	Warnings(ctx context.Context, objects []declare.Planned, scope map[string]bool) []string
}

// GuestExec is a command to run in a machine's instance.
type GuestExec struct {
	Command        []string
	Env            map[string]string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool
	Width, Height  int
	// Resize receives a terminal's new sizes and is closed at the end; a
	// hypervisor that cannot resize may ignore it.
	Resize <-chan frames.WindowSize
}

// Guests gives access to running instances. The type and the instance's name
// come from the machine's record.
type Guests interface {
	// Exec returns the command's exit code. It ends when ctx does.
	Exec(ctx context.Context, t spec.ContainerType, instance string, e GuestExec) (int, error)
	// Console runs until conn ends or ctx does.
	Console(ctx context.Context, t spec.ContainerType, instance string, conn io.ReadWriter) error
	// Log returns the console log.
	Log(ctx context.Context, t spec.ContainerType, instance string) (io.ReadCloser, error)
}

// Images are the image cache and the hypervisors' own images.
type Images interface {
	// List returns the readable images; notices describe the failures.
	List(ctx context.Context) (rows []client.Image, notices []string, err error)
	// Delete removes an image that hostler made; fault.Conflict while a machine
	// uses it, fault.NotFound if it is absent.
	Delete(ctx context.Context, reference string) error
}

// ImageBuilder makes images. progress must not be nil.
type ImageBuilder interface {
	// Import imports a file of the host into the cache. It computes an empty
	// digest.
	Import(ctx context.Context, path, reference, digest string, progress func(client.Progress)) (client.Image, error)
	// Build builds an image, even if it exists, in the format of a container type.
	Build(ctx context.Context, t spec.ContainerType, reference string, progress func(client.Progress)) (client.Image, error)
	// Ensure makes an image usable for a container type and returns the
	// hypervisor's id of it.
	Ensure(ctx context.Context, t spec.ContainerType, reference string, progress func(client.Progress)) (string, error)
}

// HostReport is the part of Status that the store does not hold.
type HostReport struct {
	Started time.Time
	// Harvest is the configured mode.
	Harvest string
	Workers []client.Worker
	Unknown []client.UnknownInstance
	// UnknownStorage is the storage with our stamp and no record.
	UnknownStorage []client.UnknownStorage
	Locks          []client.Lock
	Disk           []client.Disk
	Notices        []string
	// Guard is nil when no change of the host's own network is armed.
	Guard *client.Guarded
}

// Host provides the agent's own state and observes this host.
type Host interface {
	Report(ctx context.Context) (HostReport, error)
	Doctor(ctx context.Context) ([]client.Check, error)
	BlockDevices(ctx context.Context) ([]client.BlockDevice, error)
}

// Adoptable is an undeclared instance, described as a declared machine.
type Adoptable struct {
	// Name is the machine's name: the instance's own.
	Name    string
	Machine spec.Machine
	// UID is the machine's former uid, if it was known before.
	UID string
	// Seen is the instance's stamp; nil: none.
	Seen *Stamp
}

// Stamp proves which agent's machine an instance belongs to.
type Stamp struct{ Namespace, UID, Token string }

// Adopter takes instances under declaration.
type Adopter interface {
	// Inspect describes an instance; fault.NotFound if it is absent and
	// fault.Conflict if it bears the stamp of another agent.
	Inspect(ctx context.Context, t spec.ContainerType, instance string) (Adoptable, error)
	// Stamp stamps the instance with the identity of the machine object, which is
	// already durable; fault.Conflict if its stamp changed since Inspect.
	Stamp(ctx context.Context, t spec.ContainerType, found Adoptable, machine state.Object) error
}

// Exporter writes the YAML of a declaration, or of all existing objects if
// declaration is empty; missing lists the parts that could not be read.
type Exporter interface {
	Export(ctx context.Context, declaration string) (text []byte, missing []string, err error)
}
