package state

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// files are the paths of all files in the state directory that the store owns.
type files struct {
	dir, db, identity, mark, lock, lastGood, quarantine string
}

func filesIn(dir string) files {
	in := func(name string) string { return filepath.Join(dir, name) }
	return files{
		dir: dir, db: in("state.db"), identity: in("store-id"), mark: in("store-mark"), lock: in("lock"),
		lastGood: in("state.db.last-good"), quarantine: in("quarantine"),
	}
}

// sides are the files that SQLite keeps beside the database.
func (f files) sides() []string {
	return []string{f.db + "-wal", f.db + "-shm", f.db + "-journal"}
}

// maxQuarantined is the number of lost stores that are kept.
const maxQuarantined = 5

const quarantineTime = "20060102T150405.000000000Z"

// quarantineStore moves the database, SQLite's files beside it and the last
// good copy into the quarantine, whatever their file types. It does not read,
// follow or delete them. It returns the new path of the database, or of the
// copy if there was no database, or "" if there was neither.
func (f files) quarantineStore(now time.Time) (string, error) {
	if err := os.MkdirAll(f.quarantine, 0o700); err != nil {
		return "", err
	}
	stamp := now.UTC().Format(quarantineTime)
	for exists(filepath.Join(f.quarantine, stamp+"-"+filepath.Base(f.db))) ||
		exists(filepath.Join(f.quarantine, stamp+"-"+filepath.Base(f.lastGood))) {
		now = now.Add(1)
		stamp = now.UTC().Format(quarantineTime)
	}
	where := ""
	// The database is moved last. If the agent stops before that, the next start
	// moves the rest.
	for _, path := range append(f.sides(), f.lastGood, f.db) {
		if !exists(path) {
			continue
		}
		to := filepath.Join(f.quarantine, stamp+"-"+filepath.Base(path))
		if err := os.Rename(path, to); err != nil {
			return "", err
		}
		if path == f.db || path == f.lastGood {
			where = to
		}
	}
	for _, dir := range []string{f.quarantine, f.dir} {
		if err := syncDir(dir); err != nil {
			return "", err
		}
	}
	return where, f.pruneQuarantine(stamp)
}

// pruneQuarantine keeps the newest maxQuarantined stores. It never removes the
// store with the stamp keep, even if the clock went back.
func (f files) pruneQuarantine(keep string) error {
	entries, err := os.ReadDir(f.quarantine)
	if err != nil {
		return err
	}
	var stamps []string
	for _, e := range entries {
		stamp, _, ok := strings.Cut(e.Name(), "-")
		if ok && stamp != keep && !slices.Contains(stamps, stamp) {
			stamps = append(stamps, stamp)
		}
	}
	slices.Sort(stamps)
	for len(stamps) > maxQuarantined-1 {
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), stamps[0]+"-") {
				if err := os.RemoveAll(filepath.Join(f.quarantine, e.Name())); err != nil {
					return err
				}
			}
		}
		stamps = stamps[1:]
	}
	return nil
}

// move moves a single file, e.g. the mark, into the quarantine.
func (f files) move(path string, now time.Time) error {
	if err := os.MkdirAll(f.quarantine, 0o700); err != nil {
		return err
	}
	stamp := now.UTC().Format(quarantineTime)
	if err := os.Rename(path, filepath.Join(f.quarantine, stamp+"-"+filepath.Base(path))); err != nil {
		return err
	}
	return f.pruneQuarantine(stamp)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
