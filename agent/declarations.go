package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hostler/agent/spec"
	"hostler/internal/fault"
)

// applier applies the declarations of a folder; agent/api's server is one.
type applier interface {
	// ApplyFile takes over a file. It may take what it declares from the files
	// that are gone. held says what of it waits for a person's word.
	ApplyFile(ctx context.Context, path string, content []byte, gone []string) (held string, err error)
	RemoveFile(ctx context.Context, path string) error
	FileSources(ctx context.Context) ([]string, error)
}

// again is when a declaration file is tried again that was refused because of
// something else than itself.
const again = 5 * time.Second

// lookAgain is when a file is looked at again of which something is held back:
// it may have been allowed meanwhile.
const lookAgain = time.Minute

// maxDeclaration bounds what is read of a file, in bytes; it is more than a
// declaration may have, whose length the reader then refuses.
const maxDeclaration = 1 << 20

// lookForFolder is how often a folder is looked for that should be there.
const lookForFolder = time.Second

// followDeclarations is the worker that keeps the store in step with conf.d:
// a file is applied when it changes and its declaration removed when the file
// is gone. A folder that is absent altogether removes nothing.
func (h *host) followDeclarations(a applier) func(context.Context) error {
	return func(ctx context.Context) error {
		dir := h.paths.ConfD()
		for {
			if err := h.awaitFolder(ctx, dir, a); err != nil || ctx.Err() != nil {
				return err
			}
			var last round
			err := watchFolder(ctx, dir, isDeclaration, func() (time.Duration, error) {
				if last.waits(dir, time.Now()) {
					return whileWritten, nil
				}
				last = round{before: stampsOf(dir)}
				next, written, err := h.applyFolder(ctx, dir, a)
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
}

// awaitFolder returns when the folder is there. It makes one where nothing is
// declared in files; a folder that something was declared in and that went
// away as a whole may come back, moved by hand or mounted late.
func (h *host) awaitFolder(ctx context.Context, dir string, a applier) error {
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
			if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a folder of /etc that everybody may list
				return fmt.Errorf("cannot make %s: %w", dir, err)
			}
			break
		}
		h.tell(dir, fmt.Sprintf("%s is not there: what its files declared is kept; put it back, or make it anew and empty to have that removed", dir))
		select {
		case <-ctx.Done():
		case <-time.After(lookForFolder):
		}
	}
	h.notice(dir, "")
	return nil
}

// applyFolder applies the files of a folder and removes what the files
// declared that are gone, once none is being written. It returns when to do so
// again, zero at no time, and the files that are being written.
func (h *host) applyFolder(ctx context.Context, dir string, a applier) (next time.Duration, written []string, err error) {
	present, err := declarationFiles(dir)
	if err != nil {
		return 0, nil, err
	}
	gone, err := goneFiles(ctx, dir, present, a)
	if err != nil {
		return 0, nil, err
	}
	for _, path := range present {
		content, err := readDeclaration(path)
		if errors.Is(err, errBeingWritten) {
			written = append(written, path)
			h.notice(path, fmt.Sprintf("%s is not applied yet: %v", path, errBeingWritten))
			continue
		}
		held := ""
		if err == nil {
			held, err = a.ApplyFile(ctx, path, content, gone)
		}
		switch {
		case err != nil:
			h.tell(path, fmt.Sprintf("%s is not applied: %s", path, spec.Summary(err)))
		case held != "":
			h.tell(path, fmt.Sprintf("%s is applied, but %s", path, held))
		default:
			h.notice(path, "")
		}
		switch {
		case fault.Is(err, fault.NotReady) || fault.Is(err, fault.Transient) || fault.Is(err, fault.Conflict):
			next = again
		case held != "" && next == 0:
			next = lookAgain
		}
	}
	if len(written) > 0 { // one may take over what files declared that are gone
		return next, written, nil
	}
	for _, path := range gone {
		if err := a.RemoveFile(ctx, path); err != nil {
			return 0, nil, fmt.Errorf("cannot remove the declaration of %s: %w", path, err)
		}
	}
	h.untell(dir, present)
	return next, nil, nil
}

// untell takes back what was told of files of the folder that are there no
// more.
func (h *host) untell(dir string, present []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.notices, func(key, _ string) bool {
		return filepath.Dir(key) == dir && !slices.Contains(present, key)
	})
}

// tell shows a notice and logs it when it is new.
func (h *host) tell(key, text string) {
	h.mu.Lock()
	known := h.notices[key] == text
	h.notices[key] = text
	h.mu.Unlock()
	if !known {
		h.logger.Warn("A declaration file needs a person.", "reason", text)
	}
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

// isDeclaration tells declarations from the other files of their folder.
func isDeclaration(path string) bool {
	ext := filepath.Ext(path)
	return (ext == ".yaml" || ext == ".yml" || ext == ".json") && !strings.HasPrefix(filepath.Base(path), ".")
}

// goneFiles lists the files of the folder that something was declared in and
// that are there no more.
func goneFiles(ctx context.Context, dir string, present []string, a applier) ([]string, error) {
	sources, err := a.FileSources(ctx)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, path := range present {
		there[path] = true
	}
	var gone []string
	for _, path := range sources {
		if !there[path] && filepath.Dir(path) == dir {
			gone = append(gone, path)
		}
	}
	return gone, nil
}

// readDeclaration reads a file, if it is one: a pipe would be waited for. It
// fails with errBeingWritten.
func readDeclaration(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.Invalid, "it is not a file")
	}
	return readWhole(path, maxDeclaration)
}
