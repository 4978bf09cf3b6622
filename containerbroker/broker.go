// Package containerbroker is the contract between the provisioner and the
// drivers, each of which speaks to one hypervisor (LXD, libvirt, classic LXC).
// It holds the instance model, the Broker interface and the optional abilities.
// The drivers have packages of their own; every driver passes the conformance
// suite in brokertest.
package containerbroker

import (
	"context"
	"io"
	"strings"
	"time"
)

// Broker is a hypervisor on this host. All methods are safe for concurrent use;
// errors carry a kind of package fault. An error without a kind is transient.
type Broker interface {
	// List returns every instance of the hypervisor in one bulk call, including
	// foreign instances (their Stamp is nil). It returns either all instances
	// or an error. With detail, it also fills in state that costs the
	// hypervisor work per instance (PID, addresses), still in one call. Callers
	// show an error unchanged, so it says which listing failed and why.
	List(ctx context.Context, detail bool) ([]Instance, error)
	// Create makes the instance, stopped and with its stamp. The stamp is part
	// of the request that creates the instance. If an instance of that name
	// exists, Create returns nil if that instance's token is the same, and
	// fault.Conflict if its stamp differs or is missing. An error marked by
	// NotMade() proves that no instance of this attempt exists or can appear.
	Create(ctx context.Context, m Machine, progress Progress) error
	// Update makes the given changes (a result of Diff) to an instance that
	// bears m's stamp. Changes of impact ImpactRestart take effect at the next
	// start. Changes of impact ImpactRecreate are refused with fault.Invalid.
	// Idempotent.
	Update(ctx context.Context, m Machine, changes []Change) error
	// SetPower starts, stops or restarts an instance. It is success to start a
	// running instance, or to stop a stopped or absent instance. PowerStop asks
	// the guest to shut down and, after timeout (accurate to seconds), forces
	// it.
	SetPower(ctx context.Context, name string, to Power, timeout time.Duration) error
	// Delete removes the instance in any state (running, stopped, half-made),
	// with everything that Create made for it. An absent instance is success.
	// If the instance bears another stamp than expect, e.g. because it was adopted
	// since the caller saw it, Delete keeps it and returns fault.Conflict.
	Delete(ctx context.Context, name string, expect Stamp) error
}

// Differ finds the differences between an instance and its declaration. Every
// driver implements it. Diff does no I/O, reads no clock and returns the
// changes ordered by field.
type Differ interface {
	Diff(m Machine, i Instance) []Change
}

// EventSource is a driver that sends events about its instances. Events are
// hints, because they may be lost, duplicated or out of order. The channel is
// closed when the stream is lost; the caller then lists again and reconnects.
type EventSource interface {
	Events(ctx context.Context) (<-chan Event, error)
}

// Stamper adopts and releases instances. Both methods get the stamp that the
// caller saw, because another instance may have taken the name since. If the
// instance now bears another stamp (compared by Stamp.Is), they change nothing
// and return fault.Conflict. The check is part of the request that changes the
// stamp. Neither method restarts anything.
type Stamper interface {
	// Stamp writes s to an existing instance that bears the stamp seen, or no
	// stamp if seen is nil. It is success if the instance already bears s. An
	// instance of another namespace is fault.Conflict, even if it bears seen.
	Stamp(ctx context.Context, name string, seen *Stamp, s Stamp) error
	// Unstamp removes the stamp from an instance that bears the stamp seen. An
	// absent instance, or one without a stamp, is success.
	Unstamp(ctx context.Context, name string, seen Stamp) error
}

// ReadinessProbe waits until a started instance is usable. That means that its
// init runs and keeps running, cloud-init has finished if the image has
// cloud-init, and an address is known if one is expected. It returns
// fault.NeedsOperator with cloud-init's errors when cloud-init failed, and a
// transient error when the instance died while it waited.
type ReadinessProbe interface {
	WaitReady(ctx context.Context, m Machine, progress Progress) (Readiness, error)
}

// The exit codes of POSIX shells for a command that exists but cannot run, and
// for a missing command.
const (
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// GuestAccess gives access into a running instance.
type GuestAccess interface {
	// Exec runs a command and returns its exit code. The code is ExitNotFound or
	// ExitNotExecutable for a command that cannot run, with the reason on Stderr.
	Exec(ctx context.Context, name string, req ExecRequest) (int, error)
	// Console attaches to the console until conn is closed or ctx ends. It
	// takes no terminal size, because neither a serial line nor LXD passes a
	// size to the guest.
	Console(ctx context.Context, name string, conn io.ReadWriter) error
	// Log returns the console log; it is empty if nothing was written.
	Log(ctx context.Context, name string) (io.ReadCloser, error)
}

// LogDrainer is a GuestAccess whose Log returns each line of a running instance
// only once.
type LogDrainer interface{ LogDrains() }

// ImageStore is a hypervisor that stores images itself.
type ImageStore interface {
	// EnsureImage makes the referenced image usable and returns the
	// hypervisor's id of the image. Concurrent calls for one image share one
	// download. Errors name the image.
	EnsureImage(ctx context.Context, ref string, progress Progress) (string, error)
	// ListImages returns all images of the hypervisor, ours and foreign.
	ListImages(ctx context.Context) ([]HypervisorImage, error)
	// DeleteImage removes an image that bears our stamp and that no instance
	// uses. An absent image is success.
	DeleteImage(ctx context.Context, id string) error
}

// Cleaner is a hypervisor that may, after a power cut, have files of instances
// that it does not list. Such files block the creation of new instances of the
// same names.
type Cleaner interface {
	// MoveLeftovers moves such files to another place and returns the new
	// places. more is true if some files must stay until the hypervisor is
	// idle. MoveLeftovers deletes nothing. Files with another agent's stamp
	// stay, as do files without a stamp if the hypervisor's own tools could
	// recover them. Requires root. Idempotent.
	MoveLeftovers(ctx context.Context) (places []string, more bool, err error)
}

// Progress receives reports of a long operation; it must not block and may be
// called from any goroutine. A Progress may be nil, so call it through its
// method Report.
type Progress func(Report)

// Report is a report of an operation's progress.
type Report struct {
	// Phase is one of the words image, create, start and ready.
	Phase string
	// Message is a sentence fragment, e.g. "fetching debian/12".
	Message string
	// Percent is 0 to 100, or -1 if it is not known.
	Percent int
}

// Report sends a report, or does nothing if p is nil.
func (p Progress) Report(phase, message string, percent int) {
	if p != nil {
		p(Report{Phase: phase, Message: message, Percent: percent})
	}
}

// Power is a wanted power state.
type Power string

// The power states for SetPower.
const (
	PowerStart   Power = "start"
	PowerStop    Power = "stop"
	PowerRestart Power = "restart"
)

// Readiness is the state of a ready instance.
type Readiness struct {
	Addresses []string
	// CloudInit is "", "done", "disabled" or "error: …".
	CloudInit string
	// CloudInitTook is the time that cloud-init took by the guest's own clock, or 0.
	CloudInitTook time.Duration
	// Init is the name of process 1 in the guest.
	Init string
	// SSH is the address at which an SSH server proved to be this guest's, or
	// "". If SSH is "" and the guest has an SSH server, NoSSH says why it does
	// not answer.
	SSH, NoSSH string
}

// Summary describes cloud-init and SSH for the user. It returns "" if nothing
// is known about either.
func (r Readiness) Summary() string {
	var all []string
	if r.CloudInit != "" {
		all = append(all, "cloud-init: "+r.CloudInit)
	}
	switch {
	case r.SSH != "":
		all = append(all, "SSH answers at "+r.SSH)
	case r.NoSSH != "":
		all = append(all, "SSH does not answer this host: "+r.NoSSH)
	}
	return strings.Join(all, "; ")
}

// Event is a hint that an instance changed. An empty Instance means that
// anything may have changed.
type Event struct {
	Instance string
	// Action is the driver's own word, for the log.
	Action string
}

// ExecRequest is a command to run inside an instance. Stdout and Stderr may be
// the same writer only if it is safe for concurrent use.
type ExecRequest struct {
	Command        []string
	Env            map[string]string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool
	Width, Height  int
	// Resize delivers new sizes of the terminal; nil if the size never changes.
	// Drivers whose guests have no terminals need not read it.
	Resize <-chan WindowSize
}

// WindowSize is the size of a terminal in characters.
type WindowSize struct{ Width, Height int }

// HypervisorImage is an image in the hypervisor's own store.
type HypervisorImage struct {
	ID      string
	Aliases []string
	Size    int64 // bytes
	Created time.Time
	// Ours is true if the image bears our stamp.
	Ours bool
	// Reference is the reference from which the image was made, if known.
	Reference string
	UsedBy    []string
}
