package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"hostler/internal/atomicfile"
)

// Outcome is what became of the last guarded change of one object.
type Outcome struct {
	Object string `json:"object"`
	Key    string `json:"key"`
	// Kept: the change was committed. Otherwise all of it was undone.
	Kept   bool   `json:"kept"`
	Reason string `json:"reason,omitempty"`
	// Tries counts how often the change was interrupted; Final says that it is
	// not tried again under the same key.
	Tries int       `json:"tries,omitempty"`
	Final bool      `json:"final,omitempty"`
	At    time.Time `json:"at"`
}

// Outcomes returns the last outcome of each object; a file that cannot be read
// counts as none.
func (g *Guard) Outcomes() map[string]Outcome { return readOutcomes(g.o.Dir) }

func readOutcomes(dir string) map[string]Outcome {
	all := map[string]Outcome{}
	if data, err := os.ReadFile(filepath.Join(dir, outcomesFile)); err == nil {
		_ = json.Unmarshal(data, &all)
	}
	return all
}

// Refused says why the change is not made: it was, and had to be undone. It is
// empty where the change may be tried.
func (g *Guard) Refused(object, key string) string {
	o, ok := g.Outcomes()[object]
	if !ok || o.Key != key || o.Kept || !o.Final {
		return ""
	}
	return "the change was undone: " + o.Reason
}

// Forget lets an undone change be tried again; without one it is success.
func (g *Guard) Forget(object string) error {
	all := g.Outcomes()
	if _, ok := all[object]; !ok {
		return nil
	}
	delete(all, object)
	return writeOutcomes(g.o.Dir, all)
}

// record keeps what became of the change. Interrupted changes are counted.
func record(dir string, c *Checkpoint, kept bool, reason string, final bool) error {
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
		return nil // the folder goes with its last change
	}
	if err != nil {
		return fmt.Errorf("cannot record what became of the network's change: %w", err)
	}
	return nil
}
