package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"syscall"

	"hostler/internal/atomicfile"
	"hostler/internal/failpoint"
)

// identity is kept in a file beside the store. It distinguishes a host that
// never had a store from a host that lost it.
type identity struct {
	StoreID    string `json:"store-id"`
	Generation int64  `json:"generation"`
}

var errBadIdentity = errors.New("the identity of the store cannot be read")

// maxIdentity bounds the size of the identity and the mark, in bytes.
const maxIdentity = 4096

// readIdentity returns fs.ErrNotExist if there is no identity and
// errBadIdentity if the file does not hold a valid identity.
func readIdentity(path string) (identity, error) {
	var id identity
	b, err := readSmall(path)
	if err != nil {
		return id, err
	}
	if err := json.Unmarshal(b, &id); err != nil || id.StoreID == "" || id.Generation < 0 {
		return id, errBadIdentity
	}
	return id, nil
}

// readSmall reads a regular file. It follows no symbolic link and does not
// block on a fifo.
func readSmall(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxIdentity {
		return nil, errBadIdentity
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxIdentity))
}

func writeIdentity(path string, id identity) error {
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(b, '\n'), 0o600,
		atomicfile.BeforeRename(func() error { return failpoint.Hit(failpoint.StoreIdentityNoRename) }))
}

// markFile holds the revision of the last synced commit. It is overwritten in
// place and never synced, so it is exact after a crash of the agent and may be
// behind after a power cut. A store whose revision is below its mark is an
// older copy, or lost the end of its write-ahead log.
type markFile struct{ f *os.File }

const markFormat = "%-36s %016x %08x\n"

func openMark(path string) (*markFile, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", errDamaged, path)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return &markFile{f}, nil
}

func (m *markFile) set(storeID string, revision int64) {
	// If the write fails, the mark is behind, which is harmless.
	_, _ = m.f.WriteAt(encodeMark(storeID, revision), 0)
}

func (m *markFile) close() error {
	if m == nil {
		return nil
	}
	return m.f.Close()
}

func encodeMark(storeID string, revision int64) []byte {
	return fmt.Appendf(nil, markFormat, storeID, revision, markSum(storeID, revision))
}

func markSum(storeID string, revision int64) uint32 {
	return crc32.ChecksumIEEE(fmt.Appendf(nil, "%s %d", storeID, revision))
}

// readMark returns the revision in the mark. It returns 0 if the mark is
// absent, is torn or belongs to another store.
func readMark(path, storeID string) int64 {
	b, err := readSmall(path)
	if err != nil {
		return 0
	}
	var id string
	var revision int64
	var sum uint32
	if _, err := fmt.Sscanf(string(b), "%s %x %x", &id, &revision, &sum); err != nil {
		return 0
	}
	if id != storeID || sum != markSum(id, revision) {
		return 0
	}
	return revision
}

// exists reports whether a file of any type is at path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
