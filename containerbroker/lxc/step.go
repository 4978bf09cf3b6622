package lxc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/run"
)

// The steps.
const (
	stepCreate      = "create"
	stepUpdate      = "update"
	stepPower       = "power"
	stepDelete      = "delete"
	stepStamp       = "stamp"
	stepUnstamp     = "unstamp"
	stepReady       = "ready"
	stepDeleteImage = "delete-image"
	stepClean       = "clean"
	stepMounts      = "mounts"
)

// order says which method of a driver a step calls.
type order struct {
	Options portable
	Do      string
	Name    string                   `json:",omitempty"`
	Machine containerbroker.Machine  `json:",omitzero"`
	Changes []containerbroker.Change `json:",omitempty"`
	Stamp   containerbroker.Stamp    `json:",omitzero"`
	Seen    *containerbroker.Stamp   `json:",omitempty"`
	Power   containerbroker.Power    `json:",omitempty"`
	Timeout time.Duration            `json:",omitempty"`
	PID     int                      `json:",omitempty"`
}

// portable is the part of Options that a step gets.
type portable struct {
	Path, Namespace, Bridge string
	IDs                     IDs
	MTU                     int
	KeepRemoved             time.Duration
}

func (o Options) portable() portable {
	return portable{Path: o.Path, Namespace: o.Namespace, Bridge: o.Bridge, IDs: o.IDs, MTU: o.MTU, KeepRemoved: o.KeepRemoved}
}

// outcome is a step's result.
type outcome struct {
	// Kind, Error, Console and NotMade describe an error.
	Kind           fault.Kind `json:",omitempty"`
	Error, Console string     `json:",omitempty"`
	NotMade        bool       `json:",omitempty"`

	Readiness containerbroker.Readiness `json:",omitzero"`
	Places    []string                  `json:",omitempty"`
	More      bool                      `json:",omitempty"`
	Mounts    map[string]bool           `json:",omitempty"`
}

// err returns the error that a step met.
func (a outcome) err() error {
	if a.Error == "" {
		return nil
	}
	err := containerbroker.WithConsole(fault.New(a.Kind, "%s", a.Error), a.Console)
	if a.NotMade {
		return containerbroker.NotMade(err)
	}
	return err
}

// endWithin is how long a step whose caller has given up may take to end.
const endWithin = 10 * time.Second

// maxOutcome bounds an outcome in bytes.
const maxOutcome = 4 << 20

// call runs the program of a step. The order holds user-data, so it goes over
// the program's input.
func call(ctx context.Context, runner run.Runner, program run.Command, o order) (outcome, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return outcome{}, err
	}
	program.Stdin, program.Grace, program.Limit = bytes.NewReader(text), endWithin, maxOutcome
	result, err := runner.Run(ctx, program)
	if err != nil {
		return outcome{}, err
	}
	var a outcome
	if err := json.Unmarshal(result.Stdout, &a); err != nil {
		return outcome{}, fault.New(fault.Transient, "its answer cannot be read: %w", err)
	}
	return a, nil
}

// ServeStep reads an order, calls the driver's method and writes the outcome. It
// is the main function of a step's program.
func ServeStep(ctx context.Context, in io.Reader, out io.Writer) error {
	return serveStep(ctx, in, out, func(*Driver) {})
}

// serveStep is ServeStep with a driver that prepare may change.
func serveStep(ctx context.Context, in io.Reader, out io.Writer, prepare func(*Driver)) error {
	var o order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("cannot read the order of a step: %w", err)
	}
	p := o.Options
	d := New(Options{Path: p.Path, Namespace: p.Namespace, Bridge: p.Bridge, IDs: p.IDs, MTU: p.MTU, KeepRemoved: p.KeepRemoved})
	prepare(d)
	var a outcome
	if err := d.serve(ctx, o, &a); err != nil {
		a.Kind, a.Error, a.Console, a.NotMade = fault.KindOf(err), err.Error(), containerbroker.Console(err), containerbroker.IsNotMade(err)
	}
	return json.NewEncoder(out).Encode(a)
}

func (d *Driver) serve(ctx context.Context, o order, a *outcome) (err error) {
	switch o.Do {
	case stepCreate:
		return d.Create(ctx, o.Machine, nil)
	case stepUpdate:
		return d.Update(ctx, o.Machine, o.Changes)
	case stepPower:
		return d.SetPower(ctx, o.Name, o.Power, o.Timeout)
	case stepDelete:
		return d.Delete(ctx, o.Name, o.Stamp)
	case stepStamp:
		return d.Stamp(ctx, o.Name, o.Seen, o.Stamp)
	case stepUnstamp:
		return d.Unstamp(ctx, o.Name, o.Stamp)
	case stepReady:
		a.Readiness, err = d.WaitReady(ctx, o.Machine, nil)
	case stepDeleteImage:
		return d.DeleteImage(ctx, o.Name)
	case stepClean:
		a.Places, a.More, err = d.MoveLeftovers(ctx)
	case stepMounts:
		a.Mounts, err = d.mountPoints(ctx, o.Name, o.PID)
	default:
		return fault.New(fault.Invalid, "there is no step %q", o.Do)
	}
	return err
}
