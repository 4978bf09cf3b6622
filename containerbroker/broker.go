// Package containerbroker is the contract between the provisioner and the
// drivers that speak to one hypervisor each (LXD, libvirt, classic LXC): the
// instance model, the Broker interface and the optional abilities. The
// drivers stand in folders of their own; brokertest holds the conformance
// suite that every one of them passes.
package containerbroker

import (
	"context"
	"io"
	"strings"
	"time"
)

// Broker is one hypervisor on this host. All methods are safe for concurrent
// use; errors carry a kind of package fault (transient when they have none).
type Broker interface {
	// List returns every instance of the hypervisor in one bulk call, foreign
	// ones included (their Stamp is nil). It returns all or an error, never a
	// part. With detail, state that costs the hypervisor work per instance
	// (PID, addresses) is filled in too, still in one call. An error says what
	// could not be listed: callers tell it as it is.
	List(ctx context.Context, detail bool) ([]Instance, error)
	// Create makes the instance, stamped and stopped; the stamp is part of
	// the very request that makes it. An instance of that name with the same
	// token is success; with another stamp or none it is fault.Conflict.
	Create(ctx context.Context, m Machine, progress Progress) error
	// Update makes the given changes (a result of Diff) to an instance that
	// bears m's stamp. Changes of impact ImpactRestart take effect at the next
	// start; ImpactRecreate is refused with fault.Invalid. Idempotent.
	Update(ctx context.Context, m Machine, changes []Change) error
	// SetPower starts, stops or restarts an instance. Starting a running and
	// stopping a stopped or absent instance is success. PowerStop is graceful
	// until timeout (seconds matter, not exactness), then forced.
	SetPower(ctx context.Context, name string, to Power, timeout time.Duration) error
	// Delete removes the instance in whatever state it is (running, stopped,
	// half-made), with all that was made for it. Absent is success. When the
	// instance bears another stamp than expect (namespace and UID are
	// compared), nothing is changed and fault.Conflict is returned.
	Delete(ctx context.Context, name string, expect Stamp) error
}

// Differ says what separates an instance from its declaration. Every driver
// is one; Diff is pure: no I/O, no clock, deterministic order (by field).
type Differ interface {
	Diff(m Machine, i Instance) []Change
}

// EventSource is a driver that can tell when to look again. The channel is
// closed when the stream is lost (the caller lists again and reconnects);
// events are hints and may be lost, doubled or out of order.
type EventSource interface {
	Events(ctx context.Context) (<-chan Event, error)
}

// Stamper takes over and lets go of instances. Both methods name the stamp that
// the caller saw and check it in the request that changes it, since another
// instance may bear the name by then: where the instance bears another stamp
// (Stamp.Is compares), nothing is changed and fault.Conflict is returned.
// Neither restarts anything.
type Stamper interface {
	// Stamp writes the stamp to an existing instance that bears seen; nil: none.
	// One that bears the stamp already is success, that of another namespace is
	// fault.Conflict whatever was seen.
	Stamp(ctx context.Context, name string, seen *Stamp, s Stamp) error
	// Unstamp removes the stamp from an instance that bears seen. Absent, or
	// without a stamp, is success.
	Unstamp(ctx context.Context, name string, seen Stamp) error
}

// ReadinessProbe waits until a started instance can be used: its init runs
// and stays so, cloud-init has finished where the image has it, and an
// address is known where one is expected. It returns fault.NeedsOperator with
// cloud-init's own words when that failed, and a transient error when the
// instance died meanwhile.
type ReadinessProbe interface {
	WaitReady(ctx context.Context, m Machine, progress Progress) (Readiness, error)
}

// Guest gives access into a running instance.
type Guest interface {
	// Exec runs a command and returns its exit code: for one that is not there
	// 127 and for one that cannot be run 126, with the reason on the error
	// output, as shells do.
	Exec(ctx context.Context, name string, req ExecRequest) (int, error)
	// Console attaches to the console until conn is closed or ctx ends. It has
	// no size: neither a serial line nor LXD would carry one into the guest.
	Console(ctx context.Context, name string, conn io.ReadWriter) error
	// Log returns the console log; one to which nothing was written is empty.
	Log(ctx context.Context, name string) (io.ReadCloser, error)
}

// LogDrainer is a Guest whose Log gives what a running instance wrote only
// once.
type LogDrainer interface{ LogDrains() }

// ImageStore is a hypervisor that keeps images of its own.
type ImageStore interface {
	// EnsureImage makes the referenced image usable and returns the
	// hypervisor's id of it. Concurrent calls for one image share one fetch.
	// Errors name the image.
	EnsureImage(ctx context.Context, ref string, progress Progress) (string, error)
	// ListImages returns the images the hypervisor keeps, ours and foreign.
	ListImages(ctx context.Context) ([]HypervisorImage, error)
	// DeleteImage removes an image that bears our stamp and that no instance
	// uses. Absent is success.
	DeleteImage(ctx context.Context, id string) error
}

// Cleaner is a hypervisor that a power cut can leave with files of instances
// which it does not know itself and which are in the way of new ones of their
// names.
type Cleaner interface {
	// SetAside moves such files out of the way and returns their new places,
	// and whether some had to be left for as long as the hypervisor is at work.
	// Nothing is deleted; what bears another's stamp, or none where the
	// hypervisor's own tools could recover it, stays. Needs to be root.
	// Idempotent.
	SetAside(ctx context.Context) (places []string, more bool, err error)
}

// Progress receives steps of a long operation; it must not block and may be
// called from any goroutine. A nil Progress is allowed: use Report.
type Progress func(Step)

// Step is one progress report.
type Step struct {
	// Phase is a short word: image, create, start, ready.
	Phase string
	// Message is a plain sentence fragment: "fetching debian/12".
	Message string
	// Percent is 0 to 100, or -1 where it cannot be known.
	Percent int
}

// Report sends a step if p is set.
func (p Progress) Report(phase, message string, percent int) {
	if p != nil {
		p(Step{Phase: phase, Message: message, Percent: percent})
	}
}

// Power is a wanted power state.
type Power string

// The power states that can be asked for.
const (
	PowerStart   Power = "start"
	PowerStop    Power = "stop"
	PowerRestart Power = "restart"
)

// Readiness is what was found out about a ready instance.
type Readiness struct {
	Addresses []string
	// CloudInit is "", "done", "disabled" or "error: …".
	CloudInit string
	// Init is the name of process 1 inside.
	Init string
	// SSH is the address at which SSH was proven to answer as this guest, ""
	// where it was not; NoSSH says why, where the guest has SSH.
	SSH, NoSSH string
}

// Told says for a person what is known beyond the addresses, "" for nothing.
func (r Readiness) Told() string {
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

// ExecRequest is a command to run inside an instance. Stdout and Stderr may
// be the same writer only if it is safe for concurrent use.
type ExecRequest struct {
	Command        []string
	Env            map[string]string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool
	Width, Height  int
	// Resize tells of the terminal's new sizes; nil: it keeps its first one. A
	// hypervisor whose guests have no terminals need not read it.
	Resize <-chan WindowSize
}

// WindowSize is the size of a terminal in characters.
type WindowSize struct{ Width, Height int }

// HypervisorImage is an image as the hypervisor keeps it.
type HypervisorImage struct {
	ID      string
	Aliases []string
	Size    int64 // bytes
	Created time.Time
	// Ours says that the image bears our stamp.
	Ours bool
	// Reference is the reference it was made for, where known.
	Reference string
	UsedBy    []string
}
