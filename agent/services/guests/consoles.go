package guests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/internal/atomicfile"
	"hostler/internal/fault"
)

// maxConsole bounds the kept part of an instance's console log, in bytes.
const maxConsole = 1 << 20

// leastOverlap is the shortest overlap, in bytes, of the end of the kept log
// and the start of the new log that counts as the same text. Shorter matches,
// e.g. an empty line, occur by chance.
const leastOverlap = 256

// keepConsole appends log to the kept console log and returns the whole log. It
// serves hypervisors that return each part of a console log only once.
func (g *Access) keepConsole(ctx context.Context, t spec.ContainerType, instance string, log io.ReadCloser) (io.ReadCloser, error) {
	defer log.Close()
	g.consoles.Lock()
	defer g.consoles.Unlock()
	read, err := io.ReadAll(io.LimitReader(log, 16*maxConsole))
	if err != nil {
		return nil, fmt.Errorf("cannot read the console log of instance %q: %w", instance, err)
	}
	file, err := g.consoleFile(ctx, t, instance)
	if err != nil {
		return nil, err
	}
	stored, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fault.New(fault.Transient, "cannot read the kept console log of %s: %v", instance, err)
	}
	whole := joinConsole(stored, read)
	if !bytes.Equal(whole, stored) {
		if err := atomicfile.Write(file, whole, 0o600); err != nil {
			return nil, fault.New(fault.Transient, "cannot keep the console log of %s: %v", instance, err)
		}
	}
	return io.NopCloser(bytes.NewReader(whole)), nil
}

// consoleFile returns the path of an instance's kept log. It removes the kept
// logs of instances that no longer exist.
func (g *Access) consoleFile(ctx context.Context, t spec.ContainerType, instance string) (string, error) {
	machines, _, err := g.Store.List(ctx, spec.KindMachine)
	if err != nil {
		return "", fmt.Errorf("cannot read the machines: %w", err)
	}
	own, there := "", map[string]bool{}
	for _, o := range machines {
		var record spec.MachineRecord
		var status spec.MachineStatus
		if json.Unmarshal(o.Spec, &record) != nil || len(o.Status) == 0 || json.Unmarshal(o.Status, &status) != nil || status.Instance == nil {
			continue
		}
		// A recreate changes the token, so the new instance gets a new file.
		name := filepath.Base(o.UID + "-" + status.Instance.Token + ".log")
		there[name] = true
		if record.Machine.Type == t && status.Instance.Name == instance {
			own = name
		}
	}
	if own == "" {
		return "", fault.New(fault.NotFound, "instance %q is no machine's any more", instance)
	}
	dir := g.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fault.New(fault.Transient, "cannot make %s: %v", dir, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", fault.New(fault.Transient, "cannot read %s: %v", dir, err)
	}
	for _, f := range files {
		if !there[f.Name()] {
			_ = os.Remove(filepath.Join(dir, f.Name())) // a later call tries again
		}
	}
	return filepath.Join(dir, own), nil
}

// joinConsole appends read to the kept log, stored. It leaves out the part of
// read that is already kept, since a hypervisor may return the whole log of a
// stopped instance. It keeps at most the last maxConsole bytes.
func joinConsole(stored, read []byte) []byte {
	whole := append(bytes.Clone(stored), read...)
	switch {
	case bytes.HasPrefix(read, stored):
		whole = read
	case len(read) >= leastOverlap && bytes.HasSuffix(stored, read):
		whole = stored
	default:
		for n := min(len(stored), len(read)); n >= leastOverlap; n-- {
			if bytes.HasSuffix(stored, read[:n]) {
				whole = append(bytes.Clone(stored), read[n:]...)
				break
			}
		}
	}
	if over := len(whole) - maxConsole; over > 0 {
		whole = whole[over:]
		if end := bytes.IndexByte(whole, '\n'); end >= 0 {
			whole = whole[end+1:] // begin with a whole line
		}
	}
	return whole
}

// drains reports whether reading the log of an instance removes the log from
// the hypervisor.
func drains(guest containerbroker.GuestAccess) bool {
	_, is := guest.(containerbroker.LogDrainer)
	return is
}
