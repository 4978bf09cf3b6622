package api

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// After an upgrade both sides send frames: one byte of type, four bytes of
// length (big endian), the payload. An empty stdin frame ends stdin, so that
// the other direction stays open; the connection itself is never half closed.
const (
	frameStdin  byte = 0
	frameStdout byte = 1
	frameStderr byte = 2
	// frameExit carries the exit code in four bytes and is the server's last
	// frame.
	frameExit byte = 3
	// frameResize carries width and height, two bytes each.
	frameResize byte = 4
	// frameProblem carries a Problem as JSON and is the server's last frame.
	frameProblem byte = 5
	// frameBeat is an empty heartbeat of the server.
	frameBeat byte = 6
)

// upgradeProtocol is the value of the Upgrade header.
const upgradeProtocol = "hostler-stream"

// maxFrame bounds a payload, in bytes; a longer payload is an error.
const maxFrame = 64 << 10

var errFrame = errors.New("broken frame")

// frameWriter writes frames; it is safe for concurrent use.
type frameWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *frameWriter) send(kind byte, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := make([]byte, 5, 5+len(payload))
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(payload)))
	_, err := f.w.Write(append(b, payload...))
	return err
}

// stream returns a Writer that sends its input as frames of one type.
func (f *frameWriter) stream(kind byte) io.Writer { return frameStream{f, kind} }

type frameStream struct {
	f    *frameWriter
	kind byte
}

func (s frameStream) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		part := p[n:min(n+maxFrame, len(p))]
		if err := s.f.send(s.kind, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// readFrame returns the next frame. It returns io.EOF only between frames.
func readFrame(r io.Reader) (byte, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return head[0], payload, nil
}

// WindowSize is the size of a terminal in characters.
type WindowSize struct{ Width, Height int }

func (w WindowSize) encode() []byte {
	b := make([]byte, 4)
	binary.BigEndian.PutUint16(b, uint16(w.Width))
	binary.BigEndian.PutUint16(b[2:], uint16(w.Height))
	return b
}

func decodeWindowSize(b []byte) (WindowSize, error) {
	if len(b) != 4 {
		return WindowSize{}, fmt.Errorf("%w: a size of %d bytes", errFrame, len(b))
	}
	return WindowSize{Width: int(binary.BigEndian.Uint16(b)), Height: int(binary.BigEndian.Uint16(b[2:]))}, nil
}

func encodeExit(code int) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(int32(code)))
}

func decodeExit(b []byte) (int, error) {
	if len(b) != 4 {
		return 0, fmt.Errorf("%w: an exit code of %d bytes", errFrame, len(b))
	}
	return int(int32(binary.BigEndian.Uint32(b))), nil
}
