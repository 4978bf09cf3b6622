// Package conffiles keeps the store in step with the files that the operator
// edits: the declarations in conf.d and the configuration hostler.yaml.
package conffiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// Applier puts declaration files in force; the server of agent/api implements
// it.
type Applier interface {
	// ApplyFolder puts the files of a folder in force as a whole.
	ApplyFolder(ctx context.Context, f declare.Folder) (declare.FolderAnswer, error)
	// Files lists the files whose declarations are in force.
	Files(ctx context.Context) ([]string, error)
}

// Options are the dependencies of Declarations.
type Options struct {
	// Dir is the folder of declarations, conf.d.
	Dir string
	// Record records events in the store.
	Record func(ctx context.Context, events ...state.Event) error
	// Notice shows a sentence in the host's status. An empty text under the same
	// key clears the notice.
	Notice func(key, text string)
	Logger *slog.Logger
	Now    func() time.Time
	// Group returns the id of the administrators' group, or 0 if there is none.
	Group func() int
	// Device returns the filesystem of the folder at the last reading that was put
	// in force, as MAJOR:MINOR, or ""; SetDevice stores it.
	Device    func(ctx context.Context) (string, error)
	SetDevice func(ctx context.Context, device string) error
}

// Declarations keeps the store in step with the files of a folder.
type Declarations struct {
	o Options

	mu sync.Mutex
	// reported holds the notices about files, by path.
	reported map[string]string
	// readFiles holds the result of stampsOf() at the last reading.
	readFiles map[string]string
	// decided is the outcome of the last reading, or nil before the first. news is
	// closed and replaced after each reading.
	decided *decision
	news    chan struct{}
}

// NewDeclarations returns the Declarations of a folder. Run() starts to follow
// the files.
func NewDeclarations(o Options) *Declarations {
	return &Declarations{o: o, reported: map[string]string{}, news: make(chan struct{})}
}

// again is the delay before the folder is read again when a file was refused
// for a reason that may pass, e.g. a conflict with another file.
const again = 5 * time.Second

// lookAgain is the delay before a folder with a held step is read again,
// because the user may have allowed the step meanwhile.
const lookAgain = time.Minute

// goneFor is how long a file must be absent before its declaration counts as
// removed. Editors and deployment tools that delete a file and write it again
// take less.
const goneFor = 10 * time.Second

// maxDeclaration bounds the part of a file that is read, in bytes. It exceeds
// the longest valid declaration; the parser refuses longer files.
const maxDeclaration = 1 << 20

// maxDeclarations bounds the size of all files together, in bytes.
const maxDeclarations = 16 << 20

// lookForFolder is the delay between two looks for an absent folder.
const lookForFolder = time.Second

// Run applies files that change and removes the declarations of files that were
// deleted, until ctx ends. If the whole folder is absent, it removes nothing.
func (d *Declarations) Run(ctx context.Context, a Applier) error {
	dir := d.o.Dir
	for {
		if err := d.awaitFolder(ctx, a); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		var last round
		reader := d.newReader()
		err := watchFolder(ctx, dir, isDeclaration, func() (time.Duration, error) {
			if last.waits(dir, time.Now()) {
				return whileWritten, nil
			}
			last = round{before: stampsOf(dir)}
			next, written, refused, err := reader.apply(ctx, a)
			if err == nil {
				d.decide(decision{stamps: last.before, whole: len(written) == 0, refused: refused})
			}
			if last.written = written; len(written) == 0 {
				return next, err
			}
			if next > 0 {
				last.due = time.Now().Add(next)
			}
			return whileWritten, err
		})
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// awaitFolder returns when the folder exists. It creates the folder if no file
// in it is in force. Otherwise it waits for the folder to come back, since the
// operator may have moved it or mount it late.
func (d *Declarations) awaitFolder(ctx context.Context, a Applier) error {
	dir := d.o.Dir
	for ctx.Err() == nil {
		_, err := os.Stat(dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot read %s: %w", dir, err)
		}
		files, err := goneFiles(ctx, dir, nil, a)
		if err != nil {
			return err
		}
		if len(files) == 0 {
			if err := makeFolder(dir, d.o.Group()); err != nil {
				return fmt.Errorf("cannot make %s: %w", dir, err)
			}
			break
		}
		text := fmt.Sprintf("%s is missing: the objects of its files are kept; restore it; to have them removed, create it empty and run `hostler allow destroy KIND/NAME`", dir)
		d.report(dir, text)
		d.decide(decision{whole: true, refused: []declare.RefusedFile{{Path: dir, Reason: text, Retried: true}}})
		select {
		case <-ctx.Done():
		case <-time.After(lookForFolder):
		}
	}
	d.notice(dir, "")
	return nil
}

// makeFolder creates the folder of declarations with the mode that the package
// gives it. Declarations hold user-data, which only administrators may read.
func makeFolder(dir string, group int) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // as /etc itself
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if group != 0 {
		if err := os.Chown(dir, -1, group); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o750) //nolint:gosec // its group are administrators
}

// apply reads the files of the folder and puts them in force. It returns the
// delay before the next call (zero if none is needed), the files that are still
// being written, and the files that are not in force.
func (r *folderReader) apply(ctx context.Context, a Applier) (next time.Duration, written []string, refused []declare.RefusedFile, err error) {
	d := r.d
	f, next, written, err := r.read(ctx, a)
	if err != nil {
		return 0, nil, nil, err
	}
	answer, err := a.ApplyFolder(ctx, f)
	if err != nil {
		text := fmt.Sprintf("the files of %s are not in force: %s; they are read again soon", r.dir, spec.Summary(err))
		d.report(r.dir, text)
		return again, written, []declare.RefusedFile{{Path: r.dir, Reason: text, Retried: true}}, nil
	}
	d.notice(r.dir, "")
	// A folder on another filesystem counts as moved until all its files were read
	// and decided on.
	if !answer.Partial() {
		if err := r.remember(ctx); err != nil {
			return 0, nil, nil, err
		}
	}
	for path := range f.Files {
		d.reportFile(ctx, path, answer)
	}
	d.clearReported(slices.Collect(maps.Keys(f.Files)))
	sooner := func(d time.Duration) {
		if next == 0 || d < next {
			next = d
		}
	}
	// A conflict may be with the former version of a file whose refusal passes.
	waits := false
	for path, why := range answer.Refused {
		// If the text itself is valid, the reason for the refusal may pass.
		_, _, err := spec.ParseAlone(path, f.Files[path].Content)
		passes := err == nil || f.Files[path].Err != nil
		if passes {
			sooner(again)
		}
		waits = waits || passes && !fault.Is(why, fault.Conflict)
		refused = append(refused, declare.RefusedFile{Path: path, Reason: spec.Summary(why), Retried: passes})
	}
	for i, f := range refused {
		refused[i].Retried = f.Retried && (waits || !fault.Is(answer.Refused[f.Path], fault.Conflict))
	}
	if len(answer.Held) > 0 {
		sooner(lookAgain)
	}
	if f.Fresh && len(answer.Settling) > 0 {
		sooner(goneFor)
	}
	return next, written, refused, nil
}

// reportFile updates the notice that says whether a file is applied, held or
// refused.
func (d *Declarations) reportFile(ctx context.Context, path string, answer declare.FolderAnswer) {
	refused, held := answer.Refused[path], answer.Held[path]
	switch {
	case errors.Is(refused, errBeingWritten):
		d.notice(path, fmt.Sprintf("%s is not applied yet: %v", path, errBeingWritten))
	case refused != nil:
		text := fmt.Sprintf("%s is not applied: %s", path, spec.Summary(refused))
		if d.report(path, text) {
			d.refusedEvent(ctx, path, text)
		}
	case held.Allow != "":
		d.report(path, fmt.Sprintf("%s is applied, but %s of %s is held: `hostler apply -f %s --allow %s` lets it happen", path, held.Action, held.Object, path, held.Allow))
	case held.Object != "":
		d.report(path, fmt.Sprintf("%s is applied, but %s of %s is held: %s", path, held.Action, held.Object, held.Held))
	default:
		d.notice(path, "")
	}
}

// refusedEvent records an event for a file that is not in force.
func (d *Declarations) refusedEvent(ctx context.Context, path, text string) {
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	err := d.o.Record(ctx, state.Event{
		Time: d.o.Now(), Object: state.ID{Kind: spec.KindDeclaration, Name: name}, Level: state.LevelWarn, Reason: "NotInForce",
		Message: text + "; its previous version stays in force, and no object is removed until it is fixed",
	})
	if err != nil && ctx.Err() == nil {
		d.o.Logger.Warn("An event cannot be recorded.", "error", err)
	}
}

// clearReported removes the notices about files that are no longer in the
// folder.
func (d *Declarations) clearReported(present []string) {
	d.mu.Lock()
	known := slices.Collect(maps.Keys(d.reported))
	d.mu.Unlock()
	for _, path := range known {
		if path != d.o.Dir && !slices.Contains(present, path) {
			d.notice(path, "")
		}
	}
}

// notice sets a notice, or clears it if the text is empty.
func (d *Declarations) notice(key, text string) {
	d.o.Notice(key, text)
	d.mu.Lock()
	defer d.mu.Unlock()
	if text == "" {
		delete(d.reported, key)
		return
	}
	d.reported[key] = text
}

// report sets a notice and logs it if it is new. It returns whether it is new.
func (d *Declarations) report(key, text string) (isNew bool) {
	d.mu.Lock()
	known := d.reported[key] == text
	d.mu.Unlock()
	d.notice(key, text)
	if !known {
		d.o.Logger.Warn("A declaration file needs the operator.", "reason", text)
	}
	return !known
}

// declarationFiles lists the declarations of a folder.
func declarationFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", dir, err)
	}
	var files []string
	for _, e := range entries {
		if isDeclaration(e.Name()) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// isDeclaration says whether a file of the folder is a declaration.
func isDeclaration(path string) bool {
	ext := filepath.Ext(path)
	return (ext == ".yaml" || ext == ".yml" || ext == ".json") && !strings.HasPrefix(filepath.Base(path), ".")
}
