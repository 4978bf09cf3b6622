package persist

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"hostler/internal/atomicfile"
)

// mark returns the file that records that Pause ended a link's client.
func (k *Keeper) mark(link string) string {
	return filepath.Join(k.Paths.RunDir, "paused-dhcp-clients", link)
}

// paused returns the client of a link that Pause ended, or nil.
func (k *Keeper) paused(link string) (*client, error) {
	text, err := os.ReadFile(k.mark(link))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot look for the DHCP client of %s: %w", link, err)
	}
	if k.record(link) != nil {
		return nil, nil // NetworkManager is to configure the link again
	}
	return &client{program: dhcpcd, four: strings.TrimSpace(string(text)) == "-4"}, nil
}

// Pause ends the dhcpcd of a link before the link's address moves, because
// dhcpcd leases again as soon as it loses the address. For the same reason it takes
// a NIC from NetworkManager. The lease and the address stay. Persist, Drop or Resume
// starts the client again. Pause leaves dhclient alone, which waits until the lease
// is due.
func (k *Keeper) Pause(ctx context.Context, link string) error {
	c, err := k.client(link)
	if err == nil {
		err = k.takeOver(ctx, link)
	}
	if err != nil || c == nil || c.program != dhcpcd || c.pid == 0 {
		return err
	}
	if err := k.writeMark(link, c.family()+"\n"); err != nil {
		return err
	}
	return k.end(ctx, link, c)
}

// writeMark records that Pause ends a link's client. It comes first, so that Resume
// finds the client after a crash.
func (k *Keeper) writeMark(link, text string) error {
	if err := os.MkdirAll(filepath.Dir(k.mark(link)), 0o700); err != nil {
		return fmt.Errorf("cannot pause the DHCP client of %s: %w", link, err)
	}
	return atomicfile.Write(k.mark(link), []byte(text), 0o600)
}

// Resume restarts each paused client whose link bears its own addresses again,
// e.g. after a change was reverted. NetworkManager gets a NIC back if the NIC is, or is
// not, under a bridge as our profiles say, else Persist or Drop gives it back. left is
// true if a client stays paused.
func (k *Keeper) Resume(ctx context.Context, bears func(link string) bool) (left bool, err error) {
	entries, err := os.ReadDir(filepath.Dir(k.mark("x")))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("cannot look for paused DHCP clients: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue // a mark that was not completely written; its client was not ended
		}
		m, ported := inForce(k.Paths.Root, e.Name())
		taken, free := k.record(e.Name()) != nil, bears(e.Name())
		switch {
		case taken && !free && (!ported || k.master(e.Name()) != m.bridge):
			continue // Persist gives it back, or a later call when it leaves the bridge
		case free == (ported && taken):
			left = true
			continue
		}
		if failed := k.restart(ctx, e.Name()); failed != nil {
			left, err = true, errors.Join(err, failed)
		}
	}
	return left, err
}

// restart starts the client of a link that Pause ended, unless another process
// started a client meanwhile.
func (k *Keeper) restart(ctx context.Context, link string) error {
	if m, ported := inForce(k.Paths.Root, link); k.record(link) != nil && ported {
		return k.activate(ctx, m, false)
	} else if k.record(link) != nil {
		return k.release(ctx, link)
	}
	c, err := k.client(link)
	if err == nil && c != nil && c.pid == 0 {
		err = k.launch(ctx, c, link, link)
	}
	if err != nil {
		return err
	}
	return atomicfile.Remove(k.mark(link))
}
