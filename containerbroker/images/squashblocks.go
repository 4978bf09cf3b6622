package images

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	// squashMeta is the unpacked size of a metadata block, in bytes.
	squashMeta = 8 << 10
	// maxSquashMeta bounds the metadata kept in memory, in bytes.
	maxSquashMeta = 128 << 20
)

// squashBlocks reads and caches the metadata blocks of a squashfs.
type squashBlocks struct {
	r      io.ReaderAt
	end    int64
	unpack func([]byte) ([]byte, error)
	known  map[int64]squashBlock
	held   int64
}

type squashBlock struct {
	data []byte
	next int64 // offset of the following block
}

var errOutside = errors.New("it points outside")

func (b *squashBlocks) block(pos int64) (squashBlock, error) {
	if k, ok := b.known[pos]; ok {
		return k, nil
	}
	head := make([]byte, 2)
	if pos < superblockSize || pos > b.end-2 {
		return squashBlock{}, errOutside
	}
	if _, err := b.r.ReadAt(head, pos); err != nil {
		return squashBlock{}, err
	}
	word := binary.LittleEndian.Uint16(head)
	size := int64(word & 0x7fff)
	if size == 0 || size > squashMeta || pos+2+size > b.end {
		return squashBlock{}, errOutside
	}
	data := make([]byte, size)
	if _, err := b.r.ReadAt(data, pos+2); err != nil {
		return squashBlock{}, err
	}
	if word&0x8000 == 0 { // the bit means that the block is not compressed
		var err error
		if data, err = b.unpack(data); err != nil {
			return squashBlock{}, err
		}
		if len(data) > squashMeta {
			return squashBlock{}, errors.New("a metadata block is too long")
		}
	}
	if b.held += int64(len(data)); b.held > maxSquashMeta {
		return squashBlock{}, refuse("its tables are longer than %d MiB", maxSquashMeta>>20)
	}
	k := squashBlock{data, pos + 2 + size}
	b.known[pos] = k
	return k, nil
}

// squashCursor reads from a chain of metadata blocks. Its position is offset in
// the unpacked block at pos.
type squashCursor struct {
	b           *squashBlocks
	pos, offset int64
}

func (b *squashBlocks) at(pos, offset int64) *squashCursor { return &squashCursor{b, pos, offset} }

func (c *squashCursor) take(n int) ([]byte, error) {
	out := make([]byte, 0, n)
	for len(out) < n {
		k, err := c.b.block(c.pos)
		if err != nil {
			return nil, err
		}
		if c.offset > int64(len(k.data)) {
			return nil, errOutside
		}
		part := k.data[c.offset:]
		if want := n - len(out); len(part) > want {
			part = part[:want]
		}
		out = append(out, part...)
		c.offset += int64(len(part))
		if c.offset == int64(len(k.data)) {
			// A table continues in the next block only after a full block.
			c.pos, c.offset = k.next, 0
		}
	}
	return out, nil
}

// squashUnpacker returns the function that unpacks metadata blocks. The
// function bounds their unpacked size. squashUnpacker refuses lzma, lzo and
// lz4.
func squashUnpacker(compression uint16) (func([]byte) ([]byte, error), error) {
	few := func(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, squashMeta+1)) }
	switch compression {
	case 1:
		return func(data []byte) ([]byte, error) {
			z, err := zlib.NewReader(bytes.NewReader(data))
			if err != nil {
				return nil, err
			}
			return few(z)
		}, nil
	case 4:
		return func(data []byte) ([]byte, error) {
			x, err := newXZReader(bufio.NewReader(bytes.NewReader(data)))
			if err != nil {
				return nil, err
			}
			return few(x)
		}, nil
	case 6:
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<20))
		if err != nil {
			return nil, err
		}
		return func(data []byte) ([]byte, error) { return z.DecodeAll(data, make([]byte, 0, squashMeta)) }, nil
	}
	return nil, refuse("its squashfs uses compression %d; gzip, xz and zstd are accepted", compression)
}
