package loop

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/storage"
)

// GrowVolumes implements storage.VolumeGrower. The volume's devices have the
// new size when GrowVolumes returns.
func (s *Source) GrowVolumes(ctx context.Context, volumes []storage.GrowParams) []storage.Result[storage.Volume] {
	return storage.Each(ctx, volumes, storage.Described("grow the volume", s.grow, s.describe))
}

func (s *Source) grow(ctx context.Context, p storage.GrowParams) error {
	if err := storage.ValidateSize(p.Size); err != nil {
		return err
	}
	rec, err := s.owned(p.Ref)
	if err != nil {
		return err
	}
	size := storage.RoundSize(p.Size)
	if size < rec.Size {
		return fault.New(fault.Invalid, "it has %s and cannot shrink to %s: the data at its end would be lost", storage.Bytes(rec.Size), storage.Bytes(size))
	}
	held, err := s.hold(ctx, p.ID)
	if err != nil {
		return err
	}
	defer held.Close()
	f, err := s.open(p.ID, os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	has, allocated, err := fileSize(f.Name())
	if err != nil {
		return fmt.Errorf("cannot look at the data: %w", err)
	}
	if has < rec.Size {
		return fault.New(fault.NeedsOperator, "%s has been cut from %d to %d bytes", f.Name(), rec.Size, has)
	}
	if has < size {
		// The devices show the new size only later, so no data is beyond the old
		// size yet, and a failure can restore the old size.
		if err := s.extend(ctx, f, has, size, allocated, rec.Sparse, p.Progress); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return explain(fmt.Errorf("cannot write the file: %w", err), s.o.Dir)
		}
		s.o.Log.Info("Grew a volume.", "volume", p.ID, "bytes", size)
	}
	if rec.Size != size {
		rec.Size = size
		if err := s.records.Put(p.ID, rec); err != nil {
			return explain(err, s.o.Dir)
		}
	}
	devices, err := s.of(p.Ref)
	if err != nil {
		return err
	}
	for _, d := range devices {
		if err := s.rereadSize(d); err != nil {
			return fmt.Errorf("cannot show the new size on %s: %w", s.path(d.number), err)
		}
	}
	return nil
}

// rereadSize makes a device read the size of its file again.
func (s *Source) rereadSize(d device) error {
	f, err := s.openDevice(d.number, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_CAPACITY, 0)
}
