package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/records"
)

// step is the number of bytes per allocation call. Between calls the source
// reports progress and checks the context.
const step = 256 << 20

// Create implements storage.VolumeSource.
func (s *Source) Create(ctx context.Context, volumes []storage.VolumeParams) []storage.Result[storage.Volume] {
	return storage.Several(ctx, volumes, storage.Described("create the volume", s.create, s.describe))
}

func (s *Source) create(ctx context.Context, p storage.VolumeParams) error {
	if err := s.ValidateVolume(p); err != nil {
		return err
	}
	if err := records.MakeDir(s.o.Dir); err != nil {
		return explain(err, s.o.Dir)
	}
	// Finish an interrupted destruction first, so that the old data is not
	// mistaken for the new volume's.
	if rec, err := s.owned(p.Ref); err == nil && rec.Destroying {
		if err := s.destroy(ctx, p.Ref); err != nil {
			return err
		}
	}
	// The temporary file serves as a lock between the processes that create this
	// volume.
	temp, err := s.openTemp(ctx, p.ID)
	if err != nil {
		return explain(err, s.o.Dir)
	}
	defer temp.Close()
	made, err := s.exists(p.Ref)
	if err == nil && !made {
		err = s.make(ctx, p, temp)
	}
	if err != nil || made {
		_ = os.Remove(temp.Name())
	}
	return err
}

func (s *Source) tempPath(id string) string { return filepath.Join(s.o.Dir, id+tempSuffix) }

// openTemp opens and locks the temporary file of the new volume. It reuses a
// file that a crash left behind.
func (s *Source) openTemp(ctx context.Context, id string) (*os.File, error) {
	path := s.tempPath(id)
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, fmt.Errorf("cannot make the file: %w", err)
		}
		if err := lock(ctx, f); err != nil {
			_ = f.Close()
			return nil, err
		}
		// The previous holder of the lock may have renamed or removed the file.
		held, err := f.Stat()
		named, err2 := os.Lstat(path)
		if err == nil && err2 == nil && os.SameFile(held, named) && held.Mode().IsRegular() {
			return f, nil
		}
		_ = f.Close()
		if err2 == nil && !named.Mode().IsRegular() {
			return nil, fault.New(fault.Conflict, "%s is not a regular file", path)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// exists reports whether the volume already exists, complete and with r's
// stamp.
func (s *Source) exists(r storage.Ref) (bool, error) {
	rec, found, err := s.records.Get(r.ID)
	if err != nil {
		return false, err
	}
	_, statErr := os.Lstat(s.image(r.ID))
	switch {
	case statErr != nil && !errors.Is(statErr, os.ErrNotExist):
		return false, fmt.Errorf("cannot look for the data: %w", statErr)
	case statErr == nil && !found:
		return false, fault.New(fault.Conflict, "%s exists and has no stamp", s.image(r.ID))
	case !found:
		return false, nil
	}
	if err := r.OwnedBy(rec.Stamp); err != nil {
		// A stamp without data protects nothing, so it can be replaced.
		if statErr != nil && rec.Stamp.Namespace == r.Stamp.Namespace {
			return false, nil
		}
		return false, err
	}
	if rec.Destroying {
		return false, fault.New(fault.Conflict, "%s is being destroyed", r.ID)
	}
	return statErr == nil, nil
}

// make allocates the file and then renames it. The stamp is written before the
// rename, so that named data always has a stamp.
func (s *Source) make(ctx context.Context, p storage.VolumeParams, temp *os.File) error {
	size := storage.RoundSize(p.Size)
	// Drop data that a crash left, because it may be larger or not all zeros.
	if err := temp.Truncate(0); err != nil {
		return fmt.Errorf("cannot empty the file: %w", err)
	}
	if err := failpoint.Hit(failpoint.LoopBackingCreated); err != nil {
		return err
	}
	if err := s.extend(ctx, temp, 0, size, 0, p.Sparse, p.Progress); err != nil {
		return err
	}
	if err := temp.Sync(); err != nil {
		return explain(fmt.Errorf("cannot write the file: %w", err), s.o.Dir)
	}
	if err := s.records.Put(p.ID, record{Stamp: p.Stamp, Size: size, Sparse: p.Sparse, Record: p.Record}); err != nil {
		return explain(err, s.o.Dir)
	}
	if err := os.Rename(temp.Name(), s.image(p.ID)); err != nil {
		return fmt.Errorf("cannot name the file: %w", err)
	}
	if err := syncDir(s.o.Dir); err != nil {
		return err
	}
	s.o.Log.Info("Created a volume.", "volume", p.ID, "bytes", size, "sparse", p.Sparse)
	return nil
}

// extend extends the file from one size to another if the host keeps enough free
// space. has is the space that the file takes already.
func (s *Source) extend(ctx context.Context, f *os.File, from, to, has int64, sparse bool, progress func(done, total int64)) error {
	s.extending.Lock()
	defer s.extending.Unlock()
	if err := s.checkSpace(to, has, sparse); err != nil {
		return err
	}
	return s.allocate(ctx, f, from, to, sparse, progress)
}

// allocate extends the file from one size to another. On failure it restores
// the old size.
func (s *Source) allocate(ctx context.Context, f *os.File, from, to int64, sparse bool, progress func(done, total int64)) (err error) {
	defer func() {
		if err != nil {
			_ = f.Truncate(from)
			err = explain(err, s.o.Dir)
		}
	}()
	if sparse {
		if err := f.Truncate(to); err != nil {
			return fmt.Errorf("cannot size the file: %w", err)
		}
		return failpoint.Hit(failpoint.LoopHalfAllocated)
	}
	for at := from; at < to; {
		n := min(step, to-at)
		if from == at && n == to-at {
			n = max(n/2/storage.Unit*storage.Unit, storage.Unit) // at least two calls, so that the failpoint is hit with the file half allocated
		}
		switch err := unix.Fallocate(int(f.Fd()), 0, at, n); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP):
			return fault.New(fault.NeedsOperator, "the filesystem of %s cannot reserve space; declare the volume sparse", s.o.Dir)
		case err != nil:
			return fmt.Errorf("cannot allocate %s: %w", storage.Bytes(to-from), err)
		default:
			at += n
		}
		if progress != nil {
			progress(at-from, to-from)
		}
		if err := failpoint.Hit(failpoint.LoopHalfAllocated); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// explain adds a kind of package fault to errors of a full or read-only
// filesystem. It returns other errors unchanged.
func explain(err error, dir string) error {
	var space *storage.SpaceError
	switch {
	case err == nil || errors.As(err, &space):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(fault.Transient, "the filesystem of %s is full: %w", dir, err)
	case errors.Is(err, unix.EFBIG):
		return fault.New(fault.NeedsOperator, "the filesystem of %s cannot hold a file of that size: %w", dir, err)
	case errors.Is(err, unix.EROFS):
		return fault.New(fault.NeedsOperator, "the filesystem of %s is read-only: %w", dir, err)
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return fault.Explain(d.Sync(), "cannot write %s", dir)
}
