package managedfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/blockdevice"
)

// Create implements storage.FilesystemSource.
func (s *Source) Create(ctx context.Context, filesystems []storage.FilesystemParams) []storage.Result[storage.Filesystem] {
	return storage.Several(ctx, filesystems, storage.Described("create the filesystem", s.create, s.describe))
}

func (s *Source) create(ctx context.Context, p storage.FilesystemParams) error {
	if err := s.ValidateFilesystem(p); err != nil {
		return err
	}
	defer s.working.lock(p.ID)()
	rec, found, err := s.records.Get(p.ID)
	if err != nil {
		return err
	}
	if found {
		if err := p.OwnedBy(rec.Stamp); err != nil {
			return err
		}
		if rec.Type != p.Type && rec.Made {
			return fault.New(fault.Invalid, "it is %s and cannot become %s: declare another filesystem and move the data", rec.Type, p.Type)
		}
	}
	if p.Device == "" {
		return fault.New(fault.NotReady, "its volume is not attached")
	}
	lost := false
	if found && rec.Made {
		if err := s.verify(ctx, rec, p.Device); !fault.Is(err, fault.NotFound) || !p.Anew {
			return err
		}
		rec, found, lost = record{}, false, true
	}
	licensed := p
	if used, err := s.used(p, rec); err != nil {
		return err
	} else if used || lost {
		// The device of a lost filesystem is blank. If the device turns out to have
		// data when it is claimed, the data must stay.
		licensed.Wipe = false
	}
	if err := s.ready(ctx, kinds[p.Type], p.Progress); err != nil {
		return err
	}
	what, err := s.decide(ctx, licensed, rec, found)
	if err != nil {
		if p.Wipe && !licensed.Wipe && fault.Is(err, fault.NeedsOperator) {
			err = fault.New(fault.NeedsOperator, "%w; its \"wipe: true\" was already used for a filesystem of this name on this volume: remove the key, apply, then write it again", err)
		}
		return err
	}
	if what == adopted {
		return s.use(p)
	}
	return s.make(ctx, p, what == wiping)
}

// verify refuses a device without the filesystem. The error for a blank device
// is fault.NotFound, because the data was lost.
func (s *Source) verify(ctx context.Context, rec record, device string) error {
	found, err := probe(device)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(found, func(f blockdevice.Signature) bool {
		return f.Type == rec.Type && f.UUID == rec.UUID && !f.Unfinished
	}) {
		return nil
	}
	if blank, err := s.isBlank(ctx, device); err != nil || blank {
		return cmp.Or(err, fault.New(fault.NotFound, "its data is gone: %s is blank", device))
	}
	bears := "no known data"
	if len(found) > 0 {
		bears = blockdevice.Describe(found)
	}
	return fault.New(fault.NeedsOperator, "%s has %s, not the %s with UUID %s", device, bears, rec.Type, rec.UUID)
}

// decision is the treatment of a device.
type decision int

const (
	making  decision = iota // the device is blank
	wiping                  // the device's contents may be destroyed
	adopted                 // the device already has the filesystem
)

// decide inspects the device for a new filesystem. It refuses a device with
// other contents than this filesystem, unless p.Wipe is set. interrupted means
// that rec records an earlier, interrupted creation.
func (s *Source) decide(ctx context.Context, p storage.FilesystemParams, rec record, interrupted bool) (decision, error) {
	device, size, err := claim(p.Device)
	if err != nil {
		return 0, err
	}
	defer device.Close()
	k := kinds[p.Type]
	if size < k.least {
		return 0, fault.New(fault.Invalid, "a volume of %s is too small for %s, which needs %s", storage.Bytes(size), p.Type, storage.Bytes(k.least))
	}
	signatures, err := blockdevice.Probe(device, size)
	if err != nil {
		return 0, err
	}
	id, label := Identity(p.Stamp)
	foreign := slices.DeleteFunc(slices.Clone(signatures), func(f blockdevice.Signature) bool {
		return f.Type == p.Type && f.UUID == id
	})
	whole := slices.ContainsFunc(signatures, func(f blockdevice.Signature) bool {
		return f.Type == p.Type && f.UUID == id && !f.Unfinished
	})
	identity, err := s.o.Host.Identity(p.Device)
	if err != nil {
		return 0, err
	}
	own := interrupted && rec.Device != "" && rec.Device == identity
	switch {
	case len(foreign) > 0 && !p.Wipe:
		return 0, fault.New(fault.NeedsOperator, "%s has %s; write \"wipe: true\" to destroy that", p.Device, blockdevice.Describe(foreign))
	case len(foreign) > 0:
		return wiping, nil
	case whole:
		_ = device.Close() // the tool claims the device too
		if err := s.tool(ctx, k, k.check(p.Device)); err == nil {
			s.o.Log.Info("Found a filesystem made before.", "filesystem", p.ID, "device", p.Device)
			return adopted, s.records.Put(p.ID, record{Stamp: p.Stamp, Type: p.Type, UUID: id, Label: label, Device: identity, Made: true, Record: p.Record})
		} else if !own {
			return 0, fault.New(fault.NeedsOperator, "%s has this filesystem, but it is damaged: %w", p.Device, err)
		}
		return wiping, nil
	case own, p.Wipe:
		// Either an earlier creation was interrupted before any data could be
		// stored, or the device has no known format and its contents may be
		// wiped.
		return wiping, nil
	}
	blank, bears, err := s.blank(ctx, device, size, p.Progress)
	switch {
	case err != nil:
		return 0, err
	case blank:
		return making, nil
	case len(signatures) > 0:
		return 0, fault.New(fault.NeedsOperator, "%s has %s whose creation another program did not finish; write \"wipe: true\" to start again", p.Device, bears)
	}
	return 0, fault.New(fault.NeedsOperator, "%s has %s; write \"wipe: true\" to destroy that", p.Device, bears)
}

// claim opens a device exclusively.
func claim(path string) (*os.File, int64, error) {
	device, size, err := blockdevice.Open(path, true)
	switch {
	case errors.Is(err, blockdevice.ErrClaimed):
		return nil, 0, storage.Busy(path, err.Error(), nil)
	case errors.Is(err, os.ErrNotExist):
		return nil, 0, fault.New(fault.NotReady, "the device %s is missing", path)
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES):
		return nil, 0, fault.New(fault.NeedsOperator, "the device %s is read-only", path)
	case err != nil:
		return nil, 0, fmt.Errorf("cannot open the device: %w", err)
	}
	return device, size, nil
}

// make creates the filesystem. It writes a record without Made before, and the
// record with Made after the creation.
func (s *Source) make(ctx context.Context, p storage.FilesystemParams, wipe bool) error {
	identity, err := s.o.Host.Identity(p.Device)
	if err != nil {
		return err
	}
	id, label := Identity(p.Stamp)
	rec := record{Stamp: p.Stamp, Type: p.Type, UUID: id, Label: label, Device: identity, Record: p.Record}
	if err := s.records.Put(p.ID, rec); err != nil {
		return err
	}
	if err := s.use(p); err != nil {
		return err
	}
	if wipe {
		if err := erase(p.Device); err != nil {
			return err
		}
	}
	k := kinds[p.Type]
	c := k.make(p.Device, id, label, !wipe)
	var once sync.Once
	var hit error
	c.OnLine = func(line string) {
		once.Do(func() { hit = failpoint.Hit(failpoint.MkfsRunning) })
		if p.Progress != nil {
			p.Progress(line)
		}
	}
	// A tool that is terminated gets this time to bring its work to a consistent
	// end.
	c.Grace = 10 * time.Second
	if err := s.tool(ctx, k, c); err != nil {
		return err
	}
	if hit != nil {
		return hit
	}
	if err := flush(p.Device); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.MkfsNotRecorded); err != nil {
		return err
	}
	if err := s.verify(ctx, rec, p.Device); err != nil {
		return err
	}
	rec.Made = true
	if err := s.records.Put(p.ID, rec); err != nil {
		return err
	}
	s.o.Log.Info("Made a filesystem.", "filesystem", p.ID, "type", p.Type, "device", p.Device)
	return nil
}

// erase zeroes the places where formats keep their signatures. These are the
// first 4 MiB, the last MiB, and the copies of btrfs at 64 MiB and 256 GiB.
func erase(path string) error {
	device, size, err := claim(path)
	if err != nil {
		return err
	}
	defer device.Close()
	zeros := make([]byte, 1<<20)
	for _, at := range []int64{0, 1 << 20, 2 << 20, 3 << 20, 64 << 20, 256 << 30, size - 1<<20} {
		if at < 0 || at >= size {
			continue
		}
		n := min(int64(len(zeros)), size-at)
		if at == 64<<20 || at == 256<<30 {
			n = min(n, 4096)
		}
		if _, err := device.WriteAt(zeros[:n], at); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("cannot erase the device: %w", err)
		}
	}
	return fault.Explain(device.Sync(), "cannot erase the device")
}

// flush makes data written to a device durable.
func flush(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("cannot flush the device: %w", err)
	}
	defer f.Close()
	return fault.Explain(f.Sync(), "cannot flush the device")
}
