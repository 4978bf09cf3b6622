package lxc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"hostler/containerbroker"
	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// note is the file hostler.json in an instance's folder. It holds the stamp and
// the parts of the declaration that a config cannot express. A config and its
// note come into being by one rename of their folder. lxc-copy does not copy
// the note.
type note struct {
	Version int `json:"version"`
	// Name is the instance for which the note was written. In a copy that an
	// administrator made, it is not the folder's name.
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
	Token     string `json:"token"`
	Store     string `json:"store,omitempty"`
	Record    string `json:"record,omitempty"`
	// Image is the digest of the image. Created is the time of creation.
	Image   string    `json:"image,omitempty"`
	Created time.Time `json:"created,omitzero"`
	// RootDisk is the limit of the root filesystem in bytes.
	RootDisk int64 `json:"root-disk,omitempty"`
	// InstanceID is cloud-init's instance-id. Told is what cloud-init's seed
	// holds.
	InstanceID string `json:"instance-id,omitempty"`
	Told       told   `json:"told,omitzero"`
	// NICs and Disks are the devices that hostler gave to the instance for its
	// present machine, by name. Other interfaces of the config belong to the
	// instance.
	NICs  map[string]givenNIC  `json:"nics,omitempty"`
	Disks map[string]givenDisk `json:"disks,omitempty"`
	// Dropped are the interfaces that were removed since the start of the monitor,
	// which makes them again when the guest reboots: the host's ends by names.
	Dropped map[string]string `json:"dropped-nics,omitempty"`
	// Default is the name of the interface that an instance without declared
	// interfaces has.
	Default string `json:"default-nic,omitempty"`
}

type told struct {
	UserData      string `json:"user-data,omitempty"`
	NetworkConfig string `json:"network-config,omitempty"`
}

// givenNIC holds what the config does not say about an interface.
type givenNIC struct {
	Addresses []string `json:"addresses,omitempty"`
}

// givenDisk is a containerbroker.Disk as it was given to the instance.
type givenDisk struct {
	Source   string `json:"source"`
	Path     string `json:"path,omitempty"`
	Device   string `json:"device,omitempty"`
	ReadOnly bool   `json:"read-only,omitempty"`
}

const (
	noteVersion = 1
	// maxNote bounds a note in bytes.
	maxNote = 256 << 10
)

// errUnreadable marks a file that cannot be read, and a note whose content is no
// note of this version.
var errUnreadable = errors.New("its config or hostler.json is unreadable")

// readNote reads the note of an instance; nil means that there is none. Its
// errors wrap errUnreadable unless the file itself cannot be read.
func readNote(dir, name string) (*note, error) {
	text, err := readFile(filepath.Join(dir, fileNote), maxNote)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n, err := parseNote(text)
	if err != nil {
		return nil, err
	}
	if n.Name != name {
		return nil, nil // a copy of another instance's folder
	}
	return n, nil
}

func parseNote(text []byte) (*note, error) {
	var n note
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&n); err != nil {
		return nil, fmt.Errorf("%w: %s", errUnreadable, oneline.Clean(err.Error(), 256))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: text follows the document", errUnreadable)
	}
	if n.Version != noteVersion || n.Namespace == "" || n.Name == "" {
		return nil, fmt.Errorf("%w: it has version %d, this agent knows %d", errUnreadable, n.Version, noteVersion)
	}
	return &n, nil
}

func (n *note) write(dir string) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if len(text) > maxNote {
		return fault.New(fault.Invalid, "what has to be kept about it has %d bytes, the limit is %d", len(text), maxNote)
	}
	return atomicfile.Write(filepath.Join(dir, fileNote), text, 0o600)
}

// stamp returns the stamp in the note, or nil if n is nil.
func (n *note) stamp() *containerbroker.Stamp {
	if n == nil {
		return nil
	}
	return &containerbroker.Stamp{Namespace: n.Namespace, UID: n.UID, Token: n.Token, Record: n.Record, Store: n.Store}
}

func (n *note) setStamp(name string, s containerbroker.Stamp) {
	n.Version, n.Name = noteVersion, name
	n.Namespace, n.UID, n.Token, n.Record, n.Store = s.Namespace, s.UID, s.Token, s.Record, s.Store
}

// owned reports whether the note has the namespace and uid of the stamp.
func (n *note) owned(s containerbroker.Stamp) bool {
	return n != nil && n.Namespace == s.Namespace && n.UID == s.UID
}
