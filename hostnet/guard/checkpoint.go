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

// Phase is how far an armed change is.
type Phase string

// The phases.
const (
	// Changing is from before the first step until the probes have answered.
	Changing Phase = "changing"
	// Confirming waits for a person's word.
	Confirming Phase = "confirming"
)

// Checkpoint is what was there before a change. A change is armed exactly as
// long as its file exists.
type Checkpoint struct {
	Version   int    `json:"version"`
	ID        string `json:"id"`
	Object    string `json:"object"`
	Key       string `json:"key"`
	Namespace string `json:"namespace"`
	// Boot is the kernel's name of this run of the host.
	Boot  string    `json:"boot"`
	Phase Phase     `json:"phase"`
	Made  time.Time `json:"made"`
	// Deadline on CLOCK_BOOTTIME, which goes on while the host sleeps.
	Deadline time.Duration `json:"deadline"`
	// Confirm is how long the change waits for a person.
	Confirm time.Duration `json:"confirm,omitempty"`
	// Touched are the links of the change. Before holds them, and the links of
	// the default routes, as they were.
	Touched []string          `json:"touched"`
	Before  hostnet.Observed  `json:"before"`
	Sysctls map[string]string `json:"sysctls,omitempty"`
	Targets []Target          `json:"targets"`
}

// left is the time until the deadline.
func (c *Checkpoint) left() time.Duration { return c.Deadline - boottime() }

func (c *Checkpoint) waiting(object string) error {
	if c.Phase == Confirming {
		return fault.New(fault.NotReady, "the change for %s waits %s more for `hostler confirm`; `hostler revert` undoes it", c.Object, c.left().Round(time.Second))
	}
	return fault.New(fault.NotReady, "cannot change %s: the change for %s is being made", object, c.Object)
}

// read returns the armed change, nil when there is none.
func (g *Guard) read() (*Checkpoint, error) { return readCheckpoint(g.o.Dir) }

func readCheckpoint(dir string) (*Checkpoint, error) {
	data, err := os.ReadFile(filepath.Join(dir, checkpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the network's checkpoint: %w", err)
	}
	var c Checkpoint
	if err := json.Unmarshal(data, &c); err != nil || c.Version != checkpointVersion {
		return nil, fault.New(fault.NeedsOperator, "cannot read the network's checkpoint %s; if the host's network is as it should be, remove it",
			filepath.Join(dir, checkpointFile))
	}
	return &c, nil
}

func (g *Guard) write(c *Checkpoint) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("cannot write the network's checkpoint: %w", err)
	}
	if err := os.MkdirAll(g.o.Dir, 0o700); err != nil {
		return fmt.Errorf("cannot write the network's checkpoint: %w", err)
	}
	return atomicfile.Write(filepath.Join(g.o.Dir, checkpointFile), data, 0o600)
}

func (g *Guard) remove() error { return atomicfile.Remove(filepath.Join(g.o.Dir, checkpointFile)) }

// still says no when the change is armed no more: whoever put things back did
// so while this process slept.
func (g *Guard) still(c *Checkpoint) error {
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

// errOvertaken says that the watchdog has put things back already.
var errOvertaken = fault.New(fault.Transient, "the watchdog has undone it meanwhile")

// boottime is the time since the host's start on CLOCK_BOOTTIME.
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
