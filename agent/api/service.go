package api

import (
	"context"
	"io"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// Service is everything the API cannot answer from the store alone. All of it
// is safe for concurrent use.
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

// PlannedObject is one machine, network, volume or filesystem as it is and as
// it would be.
type PlannedObject struct {
	// Before is nil for an object that would be new.
	Before *state.Object
	// After has the spec, the life and the generation that it would have. A
	// new object has an empty UID; one that is left alone equals Before.
	After state.Object
}

// Planner says what carrying out the declared state would do. It is given
// everything there would be, what is dying included: networks and storage,
// then machines, each in the order of their names. It reads the host but
// changes nothing.
type Planner interface {
	// Plan returns the steps in the order in which they would be done; an
	// object that is as declared has none. A step that waits for a word of
	// the person says so in Held. scope holds the KIND/NAMEs that are asked
	// about: a hypervisor that has no machine among them is not looked at, and
	// steps of others may be there or not.
	Plan(ctx context.Context, objects []PlannedObject, scope map[string]bool) ([]Step, error)
	// Refuse says what of the new and changed objects cannot be on this host as
	// it is: a subnet that it reaches another way, a port that is in use. What
	// cannot be found out is no reason.
	Refuse(ctx context.Context, objects []PlannedObject) error
}

// Foreseer is a Planner that also says what will fail a moment after it was
// accepted, such as an image that does not exist, or is more than the host
// has. What cannot be found out quickly is not said.
type Foreseer interface {
	Foresee(ctx context.Context, objects []PlannedObject, scope map[string]bool) []string
}

// GuestExec is a command to run in a machine's instance.
type GuestExec struct {
	Command        []string
	Env            map[string]string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool
	Width, Height  int
	// Resize tells of a terminal's new sizes and is closed at the end; a
	// hypervisor that cannot resize may ignore it.
	Resize <-chan WindowSize
}

// Guests gives access into running instances, named by their machine. The
// type and the instance's name come from the machine's record.
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
	// List returns what can be read; notices say what could not.
	List(ctx context.Context) (rows []Image, notices []string, err error)
	// Delete removes an image of ours; fault.Conflict while a machine uses it,
	// fault.NotFound if it is absent.
	Delete(ctx context.Context, reference string) error
}

// ImageBuilder makes images. progress must not be nil.
type ImageBuilder interface {
	// Import takes a file of the host into the cache. An empty digest is
	// computed.
	Import(ctx context.Context, path, reference, digest string, progress func(Progress)) (Image, error)
	// Build builds an image anew in the form that a container type takes.
	Build(ctx context.Context, t spec.ContainerType, reference string, progress func(Progress)) (Image, error)
	// Ensure makes an image usable for a container type and returns the
	// hypervisor's id of it.
	Ensure(ctx context.Context, t spec.ContainerType, reference string, progress func(Progress)) (string, error)
}

// Glance is what Status says beyond the store.
type Glance struct {
	Started time.Time
	// Harvest is the configured mode.
	Harvest string
	Workers []Worker
	Unknown []UnknownInstance
	// UnknownStorage is what of storage is unknown.
	UnknownStorage []UnknownStorage
	Locks          []Lock
	Disk           []Disk
	Notices        []string
	// Guard is nil when no change of the host's own network is armed.
	Guard *Guarded
}

// Host knows the agent's own state and this host.
type Host interface {
	Glance(ctx context.Context) (Glance, error)
	Doctor(ctx context.Context) ([]Check, error)
	BlockDevices(ctx context.Context) ([]BlockDevice, error)
}

// Adoptable is an instance that nobody declared, as a declared machine.
type Adoptable struct {
	// Name is the machine's name: the instance's own.
	Name    string
	Machine spec.Machine
	// UID is the machine's identity, where it is one that was known before.
	UID string
	// Seen is the stamp that the instance bore; nil: none.
	Seen *Stamp
}

// Stamp is what proves whose an instance is.
type Stamp struct{ Namespace, UID, Token string }

// Adopter takes instances over.
type Adopter interface {
	// Inspect describes an instance; fault.NotFound if it is absent and
	// fault.Conflict if it bears the stamp of another agent.
	Inspect(ctx context.Context, t spec.ContainerType, instance string) (Adoptable, error)
	// Stamp marks the instance as that of the machine object, which is durable
	// by then; fault.Conflict if its stamp is another than when it was inspected.
	Stamp(ctx context.Context, t spec.ContainerType, found Adoptable, machine state.Object) error
}

// Exporter writes the YAML of one declaration, or with no name that of
// everything that is there; missing says what of it could not be read.
type Exporter interface {
	Export(ctx context.Context, declaration string) (text []byte, missing []string, err error)
}
