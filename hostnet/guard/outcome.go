package guard

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"hostler/internal/atomicfile"
	"hostler/internal/fault"
)

// Outcome is the result of the last guarded change of an object.
type Outcome struct {
	Object string `json:"object"`
	Key    string `json:"key"`
	// Kept means that the change was committed; otherwise it was undone
	// entirely.
	Kept   bool   `json:"kept"`
	Reason string `json:"reason,omitempty"`
	// Tries counts the interrupted attempts. Final means that the change is not
	// retried under the same key.
	Tries int       `json:"tries,omitempty"`
	Final bool      `json:"final,omitempty"`
	At    time.Time `json:"at"`
}

// outcomes returns the last outcome of each object. If the file cannot be read,
// there are no outcomes.
func (g *Guard) outcomes() map[string]Outcome { return readOutcomes(g.o.Dir) }

func readOutcomes(dir string) map[string]Outcome {
	all := map[string]Outcome{}
	if data, err := os.ReadFile(filepath.Join(dir, outcomesFile)); err == nil {
		_ = json.Unmarshal(data, &all)
	}
	return all
}

// Refused returns the reason why the change must not be made, or "" if the
// change may be tried. The reason is that an earlier attempt was undone.
func (g *Guard) Refused(object, key string) string {
	o, ok := g.outcomes()[object]
	if !ok || o.Key != key || o.Kept || !o.Final {
		return ""
	}
	return "the change was reverted: " + o.Reason
}

// record stores the outcome of the change and counts interrupted attempts.
func record(dir string, c *checkpoint, kept bool, reason string, final bool) error {
	all := readOutcomes(dir)
	o := Outcome{Object: c.Object, Key: c.Key, Kept: kept, Reason: reason, Final: final, At: time.Now().UTC().Truncate(time.Second)}
	if last, ok := all[c.Object]; ok && last.Key == c.Key && !last.Kept {
		o.Tries = last.Tries
	}
	if !kept && !final {
		o.Tries++
		o.Final = o.Tries >= maxTries
	}
	all[c.Object] = o
	return writeOutcomes(dir, all)
}

func writeOutcomes(dir string, all map[string]Outcome) error {
	data, err := json.Marshal(all)
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, outcomesFile), data, 0o600)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the guard's folder was removed, so no change can follow that needs the outcome
	}
	return fault.Explain(err, "cannot record the outcome of the network's change")
}
