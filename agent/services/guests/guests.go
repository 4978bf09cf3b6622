// Package guests runs commands and consoles in instances for the API. It also
// reads and keeps the console logs of instances.
package guests

import (
	"context"
	"io"
	"sync"

	"hostler/agent/api"
	"hostler/agent/client/frames"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// Access implements api.Guests for all container types.
type Access struct {
	// Broker returns the broker of a container type.
	Broker func(t spec.ContainerType) (containerbroker.Broker, error)
	Store  state.Store
	// Dir keeps the console logs that hypervisors return only once.
	Dir string

	// consoles is locked while keepConsole reads and writes a console log.
	consoles sync.Mutex
}

func (g *Access) guest(t spec.ContainerType) (containerbroker.GuestAccess, error) {
	broker, err := g.Broker(t)
	if err != nil {
		return nil, err
	}
	guest, ok := broker.(containerbroker.GuestAccess)
	if !ok {
		return nil, fault.New(fault.Invalid, "cannot reach into %s machines with this agent", t)
	}
	return guest, nil
}

// Exec implements api.Guests.
func (g *Access) Exec(ctx context.Context, t spec.ContainerType, instance string, e api.GuestExec) (int, error) {
	guest, err := g.guest(t)
	if err != nil {
		return 0, err
	}
	return guest.Exec(ctx, instance, containerbroker.ExecRequest{
		Command: e.Command, Env: e.Env, Stdin: e.Stdin, Stdout: e.Stdout, Stderr: e.Stderr,
		Terminal: e.Terminal, Width: e.Width, Height: e.Height, Resize: brokerSizes(ctx, e.Resize),
	})
}

// brokerSizes forwards window sizes until the channel closes or ctx ends.
func brokerSizes(ctx context.Context, sizes <-chan frames.WindowSize) <-chan containerbroker.WindowSize {
	passed := make(chan containerbroker.WindowSize)
	go func() {
		defer close(passed)
		for {
			select {
			case <-ctx.Done():
				return
			case size, ok := <-sizes:
				if !ok {
					return
				}
				select {
				case passed <- containerbroker.WindowSize(size):
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return passed
}

// Console implements api.Guests.
func (g *Access) Console(ctx context.Context, t spec.ContainerType, instance string, conn io.ReadWriter) error {
	guest, err := g.guest(t)
	if err != nil {
		return err
	}
	return guest.Console(ctx, instance, conn)
}

// Log implements api.Guests.
func (g *Access) Log(ctx context.Context, t spec.ContainerType, instance string) (io.ReadCloser, error) {
	guest, err := g.guest(t)
	if err != nil {
		return nil, err
	}
	log, err := guest.Log(ctx, instance)
	if err != nil || !drains(guest) {
		return log, err
	}
	return g.keepConsole(ctx, t, instance, log)
}
