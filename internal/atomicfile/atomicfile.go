// Package atomicfile replaces whole files. A reader sees either the old or the
// new content, never a part. The same holds for the disk after a power cut.
package atomicfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"hostler/internal/fault"
)

// Option changes how a file is written.
type Option func(*options)

type options struct {
	beforeRename func() error
	afterRename  func() error
}

// BeforeRename runs f when the new content is durable in the temporary file and
// the old file is still in place. If f fails, the old file stays.
func BeforeRename(f func() error) Option { return func(o *options) { o.beforeRename = f } }

// AfterRename runs f between the rename and the sync of the directory.
func AfterRename(f func() error) Option { return func(o *options) { o.afterRename = f } }

// Write replaces the file at path by a file with the content data and exactly
// the given mode, owned by the calling user. It replaces a symbolic link at
// path and never follows it. Once Write returns nil, the content survives a
// power cut. The temporary file is .NAME.hostler-tmp beside the file. Write
// takes over a temporary file left by a crash, so two processes must not write
// the same file at once.
func Write(path string, data []byte, mode fs.FileMode, opts ...Option) error {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return fault.Explain(write(path, data, mode, o), "cannot write %s", path)
}

// Remove deletes the file at path durably. It succeeds if the file is absent.
func Remove(path string) error {
	if err := os.Remove(path); err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	return fault.Explain(syncDir(filepath.Dir(path)), "cannot remove %s", path)
}

// tempName returns the name of the temporary file that Write uses for path.
func tempName(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".hostler-tmp")
}

func write(path string, data []byte, mode fs.FileMode, o options) (err error) {
	tmp := tempName(path)
	// Remove a leftover instead of truncating it, because it may be a link or
	// belong to another user.
	if err := os.Remove(tmp); err != nil && !os.IsNotExist(err) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	renamed := false
	defer func() {
		_ = f.Close()
		if err != nil && !renamed {
			_ = os.Remove(tmp)
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Chmod(mode.Perm()); err != nil {
		return err
	}
	// The kernel reports an fsync error only once, so a retry of Sync proves
	// nothing. The caller must repeat the whole write.
	if err := f.Sync(); err != nil {
		return err
	}
	if o.beforeRename != nil {
		if err := o.beforeRename(); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	renamed = true
	if o.afterRename != nil {
		if err := o.afterRename(); err != nil {
			return err
		}
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
