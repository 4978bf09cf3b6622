package guard

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler/hostnet"
	"hostler/internal/atomicfile"
	"hostler/internal/fault"
)

const (
	checkpointVersion = 1
	checkpointFile    = "checkpoint.json"
	outcomesFile      = "outcomes.json"
)

// Phase is the progress of an armed change.
type Phase string

// The phases of an armed change.
const (
	// Changing lasts from before the first step until the probes succeed.
	Changing Phase = "changing"
	// Confirming lasts until the operator confirms or reverts the change, or
	// until the deadline.
	Confirming Phase = "confirming"
)

// checkpoint is the state before a change. A change is armed as long as its
// checkpoint file exists.
type checkpoint struct {
	Version   int    `json:"version"`
	ID        string `json:"id"`
	Object    string `json:"object"`
	Key       string `json:"key"`
	Namespace string `json:"namespace"`
	// Boot is the kernel's boot id.
	Boot  string    `json:"boot"`
	Phase Phase     `json:"phase"`
	Made  time.Time `json:"made"`
	// Deadline is in CLOCK_BOOTTIME, which continues while the host sleeps.
	Deadline time.Duration `json:"deadline"`
	// Confirm is the time to wait for the operator's confirmation.
	Confirm time.Duration `json:"confirm,omitempty"`
	// Touched are the links of the change. Before holds the previous state of
	// these links and of the links of the default routes.
	Touched []string          `json:"touched"`
	Before  hostnet.Observed  `json:"before"`
	Sysctls map[string]string `json:"sysctls,omitempty"`
	Targets []target          `json:"targets"`
}

// left returns the time until the deadline.
func (c *checkpoint) left() time.Duration { return c.Deadline - boottime() }

func (c *checkpoint) waiting(object string) error {
	if c.Phase == Confirming {
		return fault.New(fault.NotReady, "the change for %s waits %s more for `hostler confirm`; `hostler revert` reverts it", c.Object, c.left().Round(time.Second))
	}
	return fault.New(fault.NotReady, "cannot change %s: the change for %s is under way", object, c.Object)
}

// read returns the armed change, or nil.
func (g *Guard) read() (*checkpoint, error) { return readCheckpoint(g.o.Dir) }

func readCheckpoint(dir string) (*checkpoint, error) {
	data, err := os.ReadFile(filepath.Join(dir, checkpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the network's checkpoint: %w", err)
	}
	var c checkpoint
	if err := json.Unmarshal(data, &c); err != nil || c.Version != checkpointVersion {
		return nil, fault.New(fault.NeedsOperator, "cannot read the network's checkpoint %s; if the host's network is right, remove the file",
			filepath.Join(dir, checkpointFile))
	}
	return &c, nil
}

func (g *Guard) write(c *checkpoint) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("cannot write the network's checkpoint: %w", err)
	}
	if err := os.MkdirAll(g.o.Dir, 0o700); err != nil {
		return fmt.Errorf("cannot write the network's checkpoint: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(g.o.Dir, checkpointFile), data, 0o600); err != nil {
		return err
	}
	select {
	case g.armed <- struct{}{}:
	default: // the channel still holds a signal that Keep has not received
	}
	return nil
}

func (g *Guard) remove() error { return atomicfile.Remove(filepath.Join(g.o.Dir, checkpointFile)) }

// still returns an error if the change is no longer armed, e.g. because the
// watchdog undid it while this process slept, or if its time is over.
func (g *Guard) still(c *checkpoint) error {
	now, err := g.read()
	switch {
	case err != nil:
		return err
	case now == nil || now.ID != c.ID:
		return errOvertaken
	case c.left() <= 0:
		return fault.New(fault.Transient, "it took longer than %s", g.o.Limit)
	}
	return nil
}

// errOvertaken means that the watchdog has already undone the change.
var errOvertaken = fault.New(fault.Transient, "the watchdog reverted it meanwhile")

// boottime returns CLOCK_BOOTTIME.
func boottime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail for this clock
	return time.Duration(now.Nano())
}

func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data))
}

func newID() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
