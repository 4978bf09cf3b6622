package images

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// xzReader unpacks an .xz file with a single stream (xz-file-format.txt 1.2).
// The library's own reader allocates as much memory as a block asks for, up to
// 4 GiB. xzReader refuses blocks that need more than maxWindow. It does not
// check the checksums of the unpacked data, because the file's sha256 was
// checked before.
type xzReader struct {
	r     *bufio.Reader
	count int64 // number of bytes of the current block that were read from r
	check int   // length in bytes of the checksum after each block
	block io.Reader
	err   error
}

var errXZ = errors.New("unexpected bytes")

func newXZReader(r *bufio.Reader) (*xzReader, error) {
	head := make([]byte, 12)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	size, ok := map[byte]int{0: 0, 1: 4, 4: 8, 10: 32}[head[7]]
	if head[6] != 0 || !ok || crc32.ChecksumIEEE(head[6:8]) != binary.LittleEndian.Uint32(head[8:]) {
		return nil, errXZ
	}
	return &xzReader{r: r, check: size}, nil
}

func (x *xzReader) Read(p []byte) (int, error) {
	if x.err != nil {
		return 0, x.err
	}
	n, err := x.read(p)
	x.err = err
	return n, err
}

func (x *xzReader) read(p []byte) (int, error) {
	for {
		if x.block == nil {
			if err := x.open(); err != nil {
				return 0, err
			}
		}
		n, err := x.block.Read(p)
		if errors.Is(err, io.EOF) {
			if err := x.close(); err != nil {
				return n, err
			}
			if n > 0 {
				return n, nil
			}
			continue
		}
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// open reads a block's header, or the index that ends the stream.
func (x *xzReader) open() error {
	first, err := x.r.ReadByte()
	if err != nil {
		return unexpected(err)
	}
	if first == 0 {
		return x.finish()
	}
	head := make([]byte, (int(first)+1)*4)
	head[0] = first
	if _, err := io.ReadFull(x.r, head[1:]); err != nil {
		return unexpected(err)
	}
	end := len(head) - 4
	if crc32.ChecksumIEEE(head[:end]) != binary.LittleEndian.Uint32(head[end:]) {
		return errXZ
	}
	flags, fields := head[1], head[2:end]
	if flags&0x3f != 0 {
		return errors.New("its blocks use filters other than LZMA2")
	}
	for _, bit := range []byte{0x40, 0x80} { // the packed and the unpacked size are optional fields
		if flags&bit == 0 {
			continue
		}
		_, n := binary.Uvarint(fields)
		if n <= 0 {
			return errXZ
		}
		fields = fields[n:]
	}
	if len(fields) < 3 || fields[0] != 0x21 || fields[1] != 1 {
		return errors.New("its blocks are not LZMA2")
	}
	window, err := lzma.DecodeDictCap(fields[2])
	if err != nil || window > maxWindow {
		return errors.New("unpacking it takes too much memory")
	}
	x.count = int64(len(head))
	x.block, err = lzma.Reader2Config{DictCap: int(max(window, lzma.MinDictCap))}.NewReader2(blockBytes{x})
	return err
}

// close skips a block's padding and checksum.
func (x *xzReader) close() error {
	x.block = nil
	skip := int(-x.count&3) + x.check
	_, err := x.r.Discard(skip)
	return unexpected(err)
}

// finish reads the index and the footer. It refuses data after them.
func (x *xzReader) finish() error {
	size := int64(1)
	number := func() (uint64, error) {
		v, err := binary.ReadUvarint(countedByte{x.r, &size})
		return v, unexpected(err)
	}
	records, err := number()
	if err != nil {
		return err
	}
	for range 2 * min(records, maxImageSize) {
		if _, err := number(); err != nil {
			return err
		}
	}
	if _, err := x.r.Discard(int(-size&3) + 4 + 12); err != nil {
		return unexpected(err)
	}
	if _, err := x.r.ReadByte(); !errors.Is(err, io.EOF) {
		return refuse("data follows the end of its xz data")
	}
	return io.EOF
}

// blockBytes counts the bytes of a block.
type blockBytes struct{ x *xzReader }

func (b blockBytes) Read(p []byte) (int, error) {
	n, err := b.x.r.Read(p)
	b.x.count += int64(n)
	return n, err
}

func (b blockBytes) ReadByte() (byte, error) {
	c, err := b.x.r.ReadByte()
	if err == nil {
		b.x.count++
	}
	return c, err
}

type countedByte struct {
	r *bufio.Reader
	n *int64
}

func (c countedByte) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		*c.n++
	}
	return b, err
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
