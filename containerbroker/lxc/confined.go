package lxc

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"hostler/containerbroker"
	"hostler/internal/run"
)

// Confined is a Driver in a process without root's full rights. It only
// observes; each change of an instance is a step, i.e. a program with full
// rights that calls the same method of a Driver. ServeStep is that program's
// part. A process needs uid 0 and no capability to observe.
type Confined struct {
	*Driver
	steps run.Runner
	// program runs a step; see Step.
	program run.Command

	mu sync.Mutex
	// mounts are the mount points of running guests, by instance.
	mounts map[string]mountsOf
}

// mountsOf are the mount points of a guest since the start of its init.
type mountsOf struct {
	initProcess
	points map[string]bool
}

var (
	_ containerbroker.Broker         = (*Confined)(nil)
	_ containerbroker.Differ         = (*Confined)(nil)
	_ containerbroker.EventSource    = (*Confined)(nil)
	_ containerbroker.Stamper        = (*Confined)(nil)
	_ containerbroker.ReadinessProbe = (*Confined)(nil)
	_ containerbroker.GuestAccess    = (*Confined)(nil)
	_ containerbroker.ImageStore     = (*Confined)(nil)
	_ containerbroker.Cleaner        = (*Confined)(nil)
)

// NewConfined returns a driver whose steps are runs of program by steps.
func NewConfined(opts Options, steps run.Runner, program run.Command) *Confined {
	c := &Confined{Driver: New(opts), steps: steps, program: program, mounts: map[string]mountsOf{}}
	c.Driver.mounted = c.mountPoints
	return c
}

// Create implements containerbroker.Broker.
func (c *Confined) Create(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) error {
	progress.Report("create", "creating "+m.Name, -1)
	_, err := c.step(ctx, order{Do: stepCreate, Machine: m})
	return err
}

// Update implements containerbroker.Broker.
func (c *Confined) Update(ctx context.Context, m containerbroker.Machine, changes []containerbroker.Change) error {
	defer c.dropMounts(m.Name)
	_, err := c.step(ctx, order{Do: stepUpdate, Machine: m, Changes: changes})
	return err
}

// SetPower implements containerbroker.Broker.
func (c *Confined) SetPower(ctx context.Context, name string, to containerbroker.Power, timeout time.Duration) error {
	defer c.dropMounts(name)
	_, err := c.step(ctx, order{Do: stepPower, Name: name, Power: to, Timeout: timeout})
	return err
}

// Delete implements containerbroker.Broker.
func (c *Confined) Delete(ctx context.Context, name string, expect containerbroker.Stamp) error {
	defer c.dropMounts(name)
	_, err := c.step(ctx, order{Do: stepDelete, Name: name, Stamp: expect})
	return err
}

// Stamp implements containerbroker.Stamper.
func (c *Confined) Stamp(ctx context.Context, name string, seen *containerbroker.Stamp, s containerbroker.Stamp) error {
	_, err := c.step(ctx, order{Do: stepStamp, Name: name, Seen: seen, Stamp: s})
	return err
}

// Unstamp implements containerbroker.Stamper.
func (c *Confined) Unstamp(ctx context.Context, name string, seen containerbroker.Stamp) error {
	_, err := c.step(ctx, order{Do: stepUnstamp, Name: name, Stamp: seen})
	return err
}

// WaitReady implements containerbroker.ReadinessProbe.
func (c *Confined) WaitReady(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) (containerbroker.Readiness, error) {
	progress.Report("ready", "waiting for "+m.Name, -1)
	a, err := c.step(ctx, order{Do: stepReady, Machine: m})
	return a.Readiness, err
}

// DeleteImage implements containerbroker.ImageStore.
func (c *Confined) DeleteImage(ctx context.Context, id string) error {
	_, err := c.step(ctx, order{Do: stepDeleteImage, Name: id})
	return err
}

// MoveLeftovers implements containerbroker.Cleaner.
func (c *Confined) MoveLeftovers(ctx context.Context) (places []string, more bool, err error) {
	a, err := c.step(ctx, order{Do: stepClean})
	return a.Places, a.More, err
}

// mountPoints returns the mount points of a guest, which only a step can read.
// It asks once for each start of the guest's init, because only this driver
// mounts disks in it.
func (c *Confined) mountPoints(ctx context.Context, name string, pid int) (map[string]bool, error) {
	ticks, there := c.startOf(pid)
	if !there {
		return nil, errNoMonitor
	}
	init := initProcess{pid, ticks}
	c.mu.Lock()
	known, is := c.mounts[name]
	c.mu.Unlock()
	if is && known.initProcess == init {
		return known.points, nil
	}
	a, err := c.step(ctx, order{Do: stepMounts, Name: name, PID: pid})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mounts[name] = mountsOf{init, a.Mounts}
	return maps.Clone(a.Mounts), nil
}

// dropMounts drops what is known about an instance's mounts.
func (c *Confined) dropMounts(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mounts, name)
}

// step runs one step.
func (c *Confined) step(ctx context.Context, o order) (outcome, error) {
	o.Options = c.opts.portable()
	a, err := call(ctx, c.steps, c.program, o)
	if err != nil {
		return a, fmt.Errorf("cannot run a step of LXC: %w", err)
	}
	return a, a.err()
}
