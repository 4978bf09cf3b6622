package loop

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/mounts"
)

// Attach implements storage.VolumeSource.
func (s *Source) Attach(ctx context.Context, volumes []storage.VolumeAttachParams) []storage.Result[storage.VolumeAttachment] {
	return storage.Several(ctx, volumes, storage.Explain("attach the volume", s.attach))
}

// attach never changes the data file.
func (s *Source) attach(ctx context.Context, p storage.VolumeAttachParams) (storage.VolumeAttachment, error) {
	var none storage.VolumeAttachment
	rec, err := s.owned(p.Ref)
	if err != nil {
		return none, err
	}
	if rec.Destroying {
		return none, fault.New(fault.Conflict, "it is being destroyed")
	}
	held, err := s.hold(ctx, p.ID)
	if err != nil {
		return none, err
	}
	defer held.Close()
	flags := os.O_RDWR
	if p.ReadOnly {
		flags = os.O_RDONLY
	}
	backing, err := s.open(p.ID, flags)
	if err != nil {
		return none, err
	}
	defer backing.Close()
	info, err := backing.Stat()
	if err != nil {
		return none, fmt.Errorf("cannot look at the data: %w", err)
	}
	if info.Size() < rec.Size {
		return none, fault.New(fault.NeedsOperator, "%s has been cut from %d to %d bytes", backing.Name(), rec.Size, info.Size())
	}
	all, err := s.devices()
	if err != nil {
		return none, err
	}
	all = slices.DeleteFunc(all, func(d device) bool { return !d.backedBy(info) })
	// Prefer the device with the wanted mode, and a device of this source to one
	// that another program made.
	slices.SortStableFunc(all, func(a, b device) int {
		rank := func(d device) int {
			switch {
			case !d.marked(p.Ref):
				return 2
			case d.readOnly() != p.ReadOnly:
				return 1
			}
			return 0
		}
		return rank(a) - rank(b)
	})
	if len(all) > 0 {
		d := all[0]
		if !d.marked(p.Ref) {
			// Two devices of one file do not see what is written to the other.
			return none, fault.New(fault.Conflict, "another program has attached it as %[1]s: end that first, e.g. with `umount %[1]s` or `losetup -d %[1]s`", s.path(d.number))
		}
		if d.readOnly() != p.ReadOnly && d.leaving(p.Ref) {
			number := unix.Mkdev(loopMajor, uint32(d.number))
			used := mounts.Used{FS: number, Block: number, Device: s.path(d.number)}
			return none, storage.Busy(s.path(d.number), "it was detached by force", mounts.Holders(s.o.Proc, used))
		}
		if d.readOnly() != p.ReadOnly {
			have := map[bool]string{true: "read-only", false: "for writing"}
			return none, fault.New(fault.Conflict, "it is attached %s as %s; detach it first to attach it %s", have[d.readOnly()], s.path(d.number), have[p.ReadOnly])
		}
		if err := s.adopt(d); err != nil {
			return none, err
		}
		return s.attachment(d, p.Ref, info), nil
	}
	f, number, err := s.bind(ctx, backing, p.Ref, p.ReadOnly)
	if err != nil {
		return none, err
	}
	defer f.Close()
	if err := failpoint.Hit(failpoint.LoopConfigured); err != nil {
		return none, err
	}
	if !rec.Sparse {
		s.noDiscard(number)
	}
	if err := keep(f); err != nil {
		return none, fmt.Errorf("cannot keep %s: %w", s.path(number), err)
	}
	if err := failpoint.Hit(failpoint.LoopAutoclear); err != nil {
		return none, err
	}
	d, err := s.look(number)
	if err != nil {
		return none, fmt.Errorf("cannot look at %s: %w", s.path(number), err)
	}
	s.o.Log.Info("Attached a volume.", "volume", p.ID, "device", s.path(number))
	return s.attachment(d, p.Ref, info), nil
}

// adopt clears autoclear on a device that was found attached, so that the
// device stays.
func (s *Source) adopt(d device) error {
	if d.status.Flags&unix.LO_FLAGS_AUTOCLEAR == 0 {
		return nil
	}
	f, err := s.openDevice(d.number, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("cannot keep %s: %w", s.path(d.number), err)
	}
	defer f.Close()
	return fault.Explain(keep(f), "cannot keep %s", s.path(d.number))
}

// noDiscard stops discards on the device from freeing blocks of the file, so
// that an allocated volume stays allocated. It ignores a refusal by the kernel.
func (s *Source) noDiscard(number int) {
	path := filepath.Join(s.o.Sys, "block", "loop"+strconv.Itoa(number), "queue/discard_max_bytes")
	if err := os.WriteFile(path, []byte("0\n"), 0); err != nil {
		s.o.Log.Debug("Cannot turn discards off.", "device", s.path(number), "error", err)
	}
}

// attachment describes a device of the volume, whose file info describes. info is
// nil if the file is missing.
func (s *Source) attachment(d device, r storage.Ref, info fs.FileInfo) storage.VolumeAttachment {
	return storage.VolumeAttachment{
		Device: s.path(d.number), ReadOnly: d.readOnly(), Foreign: !d.marked(r), Former: info != nil && !d.backedBy(info),
	}
}
