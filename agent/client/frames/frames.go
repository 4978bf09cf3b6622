// Package frames carries the streams of a command or a console over a connection
// that was upgraded from HTTP.
//
// After the upgrade both sides send frames. A frame is one byte of type, four
// bytes of length (big endian) and the payload. An empty stdin frame ends
// stdin, so that the other direction stays open. The connection itself is never
// half closed.
package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// The types of frames.
const (
	Stdin  byte = 0
	Stdout byte = 1
	Stderr byte = 2
	// Exit carries the exit code in four bytes and is the server's last
	// frame.
	Exit byte = 3
	// Resize carries width and height, two bytes each.
	Resize byte = 4
	// Problem carries a client.Problem as JSON and is the server's last frame.
	Problem byte = 5
	// Beat is an empty heartbeat of the server.
	Beat byte = 6
)

// Protocol is the value of the Upgrade header.
const Protocol = "hostler-stream"

// MaxPayload bounds a payload, in bytes; a longer payload is an error.
const MaxPayload = 64 << 10

// ErrBroken is wrapped by the errors about invalid frames.
var ErrBroken = errors.New("broken frame")

// Writer writes frames; it is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a writer of frames to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Send writes a frame.
func (f *Writer) Send(kind byte, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := make([]byte, 5, 5+len(payload))
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(payload)))
	_, err := f.w.Write(append(b, payload...))
	return err
}

// Stream returns a writer that sends its input as frames of one type.
func (f *Writer) Stream(kind byte) io.Writer { return stream{f, kind} }

type stream struct {
	f    *Writer
	kind byte
}

func (s stream) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		part := p[n:min(n+MaxPayload, len(p))]
		if err := s.f.Send(s.kind, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// Read returns the type and payload of the next frame. It returns io.EOF only
// between frames.
func Read(r io.Reader) (byte, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxPayload {
		return 0, nil, fmt.Errorf("%w: %d bytes", ErrBroken, n)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return head[0], payload, nil
}

// WindowSize is the size of a terminal in characters.
type WindowSize struct{ Width, Height int }

// Encode returns the payload of a Resize frame.
func (w WindowSize) Encode() []byte {
	b := make([]byte, 4)
	binary.BigEndian.PutUint16(b, uint16(w.Width))
	binary.BigEndian.PutUint16(b[2:], uint16(w.Height))
	return b
}

// DecodeWindowSize reads the payload of a Resize frame.
func DecodeWindowSize(b []byte) (WindowSize, error) {
	if len(b) != 4 {
		return WindowSize{}, fmt.Errorf("%w: a size of %d bytes", ErrBroken, len(b))
	}
	return WindowSize{Width: int(binary.BigEndian.Uint16(b)), Height: int(binary.BigEndian.Uint16(b[2:]))}, nil
}

// EncodeExit returns the payload of an Exit frame.
func EncodeExit(code int) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(int32(code)))
}

// DecodeExit reads the payload of an Exit frame.
func DecodeExit(b []byte) (int, error) {
	if len(b) != 4 {
		return 0, fmt.Errorf("%w: an exit code of %d bytes", ErrBroken, len(b))
	}
	return int(int32(binary.BigEndian.Uint32(b))), nil
}
