package blockdevice

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Use is the purpose of a device's contents.
type Use string

// The uses.
const (
	useFilesystem     Use = "filesystem"
	usePartitionTable Use = "partition table"
	useSwap           Use = "swap space"
	useEncrypted      Use = "encrypted volume"
	useMember         Use = "member of a volume group or array"
	useDiskImage      Use = "disk image"
)

// Signature is a known format found on a device.
type Signature struct {
	// Type is the short name that other tools use too, such as ext4,
	// LVM2_member or gpt.
	Type string
	Use  Use
	// UUID and Label are empty if the format has none.
	UUID, Label string
	// Unfinished is true if the tool that makes the format was interrupted.
	Unfinished bool
}

func (s Signature) String() string {
	text := s.Type + " " + string(s.Use)
	if s.Label != "" {
		text += fmt.Sprintf(" labelled %q", s.Label)
	}
	if s.Unfinished {
		text += ", incomplete"
	}
	return text
}

// Probe returns every known format in the first size bytes of r, the most
// significant first; none if no format is known. It reads only a few places and
// never more than a MiB.
func Probe(r io.ReaderAt, size int64) ([]Signature, error) {
	p := &prober{r: r, size: size}
	for _, look := range looks {
		if s, ok := look(p); ok && !slices.ContainsFunc(p.found, func(o Signature) bool { return o.Type == s.Type }) {
			p.found = append(p.found, s)
		}
		if p.err != nil {
			return nil, fmt.Errorf("cannot read the device: %w", p.err)
		}
	}
	return p.found, nil
}

// prober remembers the first error, so that looks need not return it.
type prober struct {
	r     io.ReaderAt
	size  int64
	err   error
	found []Signature
}

// at returns n bytes from an offset. It returns zeros if the device ends before
// offset+n.
func (p *prober) at(offset int64, n int) []byte {
	b := make([]byte, n)
	if p.err != nil || offset < 0 || offset+int64(n) > p.size {
		return b
	}
	if _, err := p.r.ReadAt(b, offset); err != nil && !errors.Is(err, io.EOF) {
		p.err = err
	}
	return b
}

func (p *prober) has(offset int64, magic string) bool {
	return offset+int64(len(magic)) <= p.size && offset >= 0 && string(p.at(offset, len(magic))) == magic
}

// Describe lists signatures for the user.
func Describe(signatures []Signature) string {
	var texts []string
	for _, s := range signatures {
		texts = append(texts, s.String())
	}
	return strings.Join(texts, ", ")
}
