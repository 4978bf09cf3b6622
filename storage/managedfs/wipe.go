package managedfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/blockdevice"
)

// wiped notes that a filesystem was created with "wipe: true". The note
// outlives the filesystem, whose data stays on its volume. If the filesystem is
// declared again, e.g. with another type, and still with "wipe: true", this key
// does not apply to the data.
type wiped struct {
	// Device is the identity of the device of the filesystem.
	Device string `json:"device"`
	// Backing is the file behind the device, or "". The note is dropped when the
	// file is gone.
	Backing string `json:"backing,omitempty"`
}

// forget drops notes of filesystems without a record whose backing file is
// gone.
func (s *Source) forget() error {
	ids, err := s.wiped.IDs()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, there, err := s.records.Get(id); there || err != nil {
			continue
		}
		note, found, err := s.wiped.Get(id)
		if err != nil || !found || note.Backing == "" {
			continue
		}
		if _, err := os.Lstat(note.Backing); errors.Is(err, fs.ErrNotExist) {
			if err := s.wiped.Remove(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// used reports whether the "wipe: true" of p was already used on p's device,
// because a filesystem with p's name was created there with this key. An
// interrupted creation may use the key again. If p lacks the key, used removes
// the note.
func (s *Source) used(p storage.FilesystemParams, rec record) (bool, error) {
	note, found, err := s.wiped.Get(p.ID)
	if err != nil || !found {
		return false, err
	}
	if !p.Wipe {
		return false, s.wiped.Remove(p.ID)
	}
	identity, err := s.o.Host.Identity(p.Device)
	interrupted := rec.UUID != "" && !rec.Made && rec.Device == identity
	return note.Device == identity && !interrupted, err
}

// use notes that p's "wipe: true" is used up. Call it after the creation is
// recorded, or for a filesystem that exists already.
func (s *Source) use(p storage.FilesystemParams) error {
	if !p.Wipe {
		return nil
	}
	identity, err := s.o.Host.Identity(p.Device)
	if err != nil {
		return err
	}
	return s.wiped.Put(p.ID, wiped{Device: identity, Backing: s.o.Host.BackingFile(p.Device)})
}

// proofLimit bounds the time for reading a device to prove it blank. Only
// devices without a backing file take long.
const proofLimit = 30 * time.Minute

// blank reports whether a device is proven empty. If not, found describes the
// contents.
func (s *Source) blank(ctx context.Context, device *os.File, size int64, progress func(string)) (blank bool, found string, err error) {
	within, cancel := context.WithTimeout(ctx, proofLimit)
	defer cancel()
	var show func(done, total int64)
	if progress != nil {
		show = func(done, total int64) {
			progress(fmt.Sprintf("reading %s to prove that it is blank: %d %%", device.Name(), done*100/total))
		}
	}
	blank, found, err = blockdevice.Blank(within, device, size, show)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return false, "", fault.New(fault.NeedsOperator,
			"%s could not be read to its end within %s to prove that it is blank; write \"wipe: true\" to destroy its data", device.Name(), proofLimit)
	}
	return blank, found, err
}

// isBlank calls blank() for a device that other processes may have open.
func (s *Source) isBlank(ctx context.Context, path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("cannot open the device: %w", err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return false, fmt.Errorf("cannot read the device: %w", err)
	}
	blank, _, err := s.blank(ctx, f, size, nil)
	return blank, err
}
