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

// wiped notes that a filesystem was made while "wipe: true" was said. It
// outlives the filesystem, whose data stays on its volume: declared again, e.g.
// with another type, and with the key still there, the key does not reach that
// data.
type wiped struct {
	// Device is the identity of the device on which it was made.
	Device string `json:"device"`
	// Backing is the file behind the device, where there is one: with it goes
	// the note.
	Backing string `json:"backing,omitempty"`
}

// forget drops the notes of filesystems that are not there, on volumes whose
// file is gone.
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

// used says whether "wipe: true" of p was used on its device already: a
// filesystem of that name was made there since. While that making is
// interrupted it goes on. A declaration without the key ends the note.
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

// use notes that "wipe: true" was said for a making whose record is there, or
// for a filesystem that was found.
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

// proofLimit bounds how long a device is read to prove that it is blank. Only
// devices that no file stands behind take long.
const proofLimit = 30 * time.Minute

// blank says whether a device is proven to hold nothing; found says what
// stands against it.
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
			"%s could not be read to its end within %s to prove that it is blank; say \"wipe: true\" to destroy whatever is on it", device.Name(), proofLimit)
	}
	return blank, found, err
}

// isBlank is blank for a device that others may have open.
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
