package storage

import (
	"fmt"
	"strings"

	"hostler/internal/fault"
)

// Holder is a process that keeps a device or a mount busy.
type Holder struct {
	PID     int
	Command string
	// Path is the held file, directory or mount, as the process sees it.
	Path string
}

func (h Holder) String() string { return fmt.Sprintf("%s (pid %d) holds %s", h.Command, h.PID, h.Path) }

// BusyError says that an object is in use, and by which processes. It is
// transient, because a retry may succeed once a holder has ended.
type BusyError struct {
	// What is the device, path or id of the object.
	What string
	// Holders is empty if no process was found, because the kernel itself holds
	// the object or the process has ended.
	Holders []Holder
	// Why adds a reason besides the holders.
	Why string
}

func (e *BusyError) Error() string {
	text := e.What + " is in use"
	if e.Why != "" {
		text += ": " + e.Why
	}
	// The message shows only the first few holders. Callers find all in Holders.
	const shown = 5
	var names []string
	for _, h := range e.Holders[:min(len(e.Holders), shown)] {
		names = append(names, h.String())
	}
	if len(names) > 0 {
		text += ": " + strings.Join(names, ", ")
	}
	if more := len(e.Holders) - shown; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// Busy returns a transient BusyError.
func Busy(what, why string, holders []Holder) error {
	return fault.Wrap(fault.Transient, &BusyError{What: what, Why: why, Holders: holders})
}

// SpaceError says that a filesystem of the host has too little free space. It
// is transient, because space may be freed.
type SpaceError struct {
	// Path is a path on the filesystem. Need and Free are in bytes. Free does not
	// include the host's reserve.
	Path       string
	Need, Free int64
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("%s are needed on the filesystem of %s, which has %s available", Bytes(e.Need), e.Path, Bytes(e.Free))
}

// OwnedBy returns nil if found is the stamp of r, else fault.Conflict. found is
// the stamp of the object on the host.
func (r Ref) OwnedBy(found Stamp) error {
	if found == r.Stamp {
		return nil
	}
	if found.Namespace != r.Stamp.Namespace {
		return fault.New(fault.Conflict, "%s belongs to the namespace %q", r.ID, found.Namespace)
	}
	return fault.New(fault.Conflict, "%s belongs to an earlier declaration of this name (%s)", r.ID, found.UID)
}

// Warning returns a warning for the operator if the filesystem is nearly full
// or sparse volumes may fill it, or else "".
func (s Space) Warning() string {
	switch {
	case s.Promised > 0 && s.Free < s.Total/20:
		return fmt.Sprintf("the filesystem of %s is nearly full: %s free, sparse volumes may still need %s", s.Path, Bytes(s.Free), Bytes(s.Promised))
	case s.Promised > s.Free:
		return fmt.Sprintf("sparse volumes may still need %s of the filesystem of %s, which has %s free", Bytes(s.Promised), s.Path, Bytes(s.Free))
	case s.Free < s.Total/50:
		return fmt.Sprintf("the filesystem of %s is nearly full: %s free", s.Path, Bytes(s.Free))
	}
	return ""
}

// Bytes formats a size for the user, e.g. "1.5 GiB".
func Bytes(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB"}
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + " " + units[unit]
}
