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

// Service provides the parts of the agent that the API needs besides the store.
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
	Migrator Migrator
}

// Planner predicts the steps that make the host match the declared state. Its
// methods get all planned objects, including objects that are being removed.
// Networks and storage come first, then machines, each sorted by name. The
// methods observe the host but change nothing.
type Planner interface {
	// Plan returns the steps in the order in which the workers carry them out.
	// An object that matches its declaration has no steps. A step with Held
	// waits for the user's consent. scope holds the KIND/NAMEs of the objects
	// to plan. Plan does not observe hypervisors without a machine in scope,
	// and may leave out steps of objects outside scope.
	Plan(ctx context.Context, objects []declare.Planned, scope map[string]bool) ([]client.Step, error)
	// Refuse returns an error for new and changed objects that cannot exist on
	// this host, e.g. a subnet that the host reaches another way or a port that is
	// in use. If Refuse cannot observe the host, it returns nil.
	Refuse(ctx context.Context, objects []declare.Planned) error
}

// warner is a Planner that also predicts failures of declared objects, e.g. an
// image that does not exist or more memory than the host has. It leaves out
// failures that take long to predict.
type warner interface {
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
	// Resize sends a terminal's new sizes and is closed at the end. A driver
	// whose hypervisor cannot resize a terminal can ignore Resize.
	Resize <-chan frames.WindowSize
}

// Guests gives access to running instances. The type and the instance's name
// come from the machine's record.
type Guests interface {
	// Exec runs a command and returns its exit code. It ends when ctx ends.
	Exec(ctx context.Context, t spec.ContainerType, instance string, e GuestExec) (int, error)
	// Console connects conn to the instance's console until conn or ctx ends.
	Console(ctx context.Context, t spec.ContainerType, instance string, conn io.ReadWriter) error
	// Log returns the instance's console log.
	Log(ctx context.Context, t spec.ContainerType, instance string) (io.ReadCloser, error)
}

// Images gives access to the image cache and to the hypervisors' images.
type Images interface {
	// List returns the images. notices says which images are missing because
	// they could not be read.
	List(ctx context.Context) (rows []client.Image, notices []string, err error)
	// Available returns the images that can be built.
	Available(ctx context.Context) []client.AvailableImage
	// Delete removes an image that hostler made. It returns fault.Conflict if a
	// machine uses the image, and fault.NotFound if the image does not exist.
	Delete(ctx context.Context, reference string) error
}

// ImageBuilder makes images. progress must not be nil.
type ImageBuilder interface {
	// Import imports a file of the host into the cache. If digest is "", it
	// computes the digest.
	Import(ctx context.Context, path, reference, digest string, progress func(client.Progress)) (client.Image, error)
	// Build builds an image in the format of a container type, even if the image
	// exists.
	Build(ctx context.Context, t spec.ContainerType, reference string, progress func(client.Progress)) (client.Image, error)
	// Ensure makes an image usable for a container type and returns the image's
	// id in the hypervisor.
	Ensure(ctx context.Context, t spec.ContainerType, reference string, progress func(client.Progress)) (string, error)
}

// HostReport is the part of Status that the store does not hold.
type HostReport struct {
	Started time.Time
	// Harvest is the configured mode.
	Harvest string
	Workers []client.Worker
	Unknown []client.UnknownInstance
	Moved   []client.MovedInstance
	// UnknownStorage is the storage that has our stamp but no record.
	UnknownStorage []client.UnknownStorage
	Locks          []client.Lock
	Disk           []client.Disk
	Notices        []string
	// Guard is nil if no change of the host's own network is armed.
	Guard *client.Guarded
}

// Host provides the agent's own state and observes this host.
type Host interface {
	Report(ctx context.Context) (HostReport, error)
	Doctor(ctx context.Context) ([]client.Check, error)
	BlockDevices(ctx context.Context) ([]client.BlockDevice, error)
}

// Adoptable describes an undeclared instance as a declared machine.
type Adoptable struct {
	// Name is the name of the instance and of the machine.
	Name    string
	Machine spec.Machine
	// UID is the machine's former uid, or "" if it had none.
	UID string
	// Seen is the instance's stamp, or nil if it has none. Token is the token of
	// the stamp that it gets.
	Seen  *Stamp
	Token string
}

// Stamp proves which agent's machine an instance belongs to.
type Stamp struct{ Namespace, UID, Token string }

// Adopter takes instances under declaration.
type Adopter interface {
	// Inspect describes an instance. It returns fault.NotFound if the instance
	// does not exist and fault.Conflict if it has the stamp of another agent.
	Inspect(ctx context.Context, t spec.ContainerType, instance string) (Adoptable, error)
	// Stamp gives the instance the stamp of the machine object, which is already
	// durable. It returns fault.Conflict if the stamp changed since Inspect.
	Stamp(ctx context.Context, t spec.ContainerType, found Adoptable, machine state.Object) error
}

// Migrator plans moves of machines to another container type.
type Migrator interface {
	// Plan returns a step for each named machine, or for each machine of the type
	// from if there are no names.
	Plan(ctx context.Context, from, to spec.ContainerType, names []string) ([]client.MigrationStep, error)
}

// Exporter returns the YAML of a declaration, or of all objects and instances
// if declaration is "". missing lists the parts that could not be read.
type Exporter interface {
	Export(ctx context.Context, declaration string) (text []byte, missing []string, err error)
}
