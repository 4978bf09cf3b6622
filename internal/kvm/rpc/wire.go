package rpc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
)

// The layout of a frame of libvirt's protocol, big-endian words: length,
// program, version, procedure, type, serial, status. The length counts itself.
const (
	frameHeader = 28
	// maxFrame bounds one frame in bytes: libvirt's own limit is 32 MiB, and
	// no answer that is asked for here comes near to it.
	maxFrame = 16 << 20

	programRemote = 0x20008086
	typeMessage   = 2
)

// errFrame says that what came is not libvirt's protocol.
var errFrame = errors.New("libvirt sent a frame of impossible length")

// wire is a connection to libvirt that lets only well-formed frames through:
// the library trusts the length of a frame with its life. Events are taken out
// and given to onEvent; the library's own queue of them has no bound. Reads
// are made by one goroutine.
type wire struct {
	net.Conn
	onEvent func(Event)
	pending bytes.Buffer
	failed  error
}

// Read implements io.Reader over whole frames.
func (w *wire) Read(p []byte) (int, error) {
	for w.pending.Len() == 0 {
		if w.failed == nil {
			w.failed = w.frame()
		}
		if w.failed != nil {
			_ = w.Close()
			// A bare error: the library takes some of package net for a
			// reason to try again for ever.
			return 0, io.EOF
		}
	}
	return w.pending.Read(p)
}

// frame reads the next frame that the library is to see.
func (w *wire) frame() error {
	var head [frameHeader]byte
	if _, err := io.ReadFull(w.Conn, head[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length < frameHeader || length > maxFrame {
		return errFrame
	}
	event := binary.BigEndian.Uint32(head[4:]) == programRemote && binary.BigEndian.Uint32(head[16:]) == typeMessage
	w.pending.Reset()
	w.pending.Write(head[:])
	// Copied as it comes, so that a length alone costs no memory.
	if _, err := io.CopyN(&w.pending, w.Conn, int64(length-frameHeader)); err != nil {
		w.pending.Reset()
		return err
	}
	if !plausible(w.pending.Bytes()) {
		w.pending.Reset()
		return errFrame
	}
	if event {
		if e, ok := parseEvent(binary.BigEndian.Uint32(head[12:]), w.pending.Bytes()[frameHeader:]); ok && w.onEvent != nil {
			w.onEvent(e)
		}
		w.pending.Reset()
	}
	return nil
}

// counted are the procedures whose answers begin with the length of a text or
// the number of things in a list (remote_protocol.x). The library makes room
// for as many as it is told before it looks whether they came.
var counted = map[uint32]bool{
	14: true, 23: true, 41: true, 46: true, 66: true, 77: true, 84: true, 88: true, 93: true, 95: true,
	145: true, 196: true, 273: true, 282: true, 344: true, 350: true,
}

// plausible refuses a good answer that begins with a number of more things
// than it can hold.
func plausible(frame []byte) bool {
	word := func(at int) uint32 { return binary.BigEndian.Uint32(frame[at:]) }
	const reply, good = 1, 0
	if word(4) != programRemote || word(16) != reply || word(24) != good || !counted[word(12)] {
		return true
	}
	return len(frame) >= frameHeader+4 && int64(word(frameHeader)) <= int64(len(frame)-frameHeader-4)
}

// Event is a domain event as it stands in its frame. Code and Detail are
// those of lifecycle events, otherwise 0.
type Event struct {
	Procedure    uint32
	Name         string
	UUID         [16]byte
	Code, Detail uint32
}

// ProcLifecycle is the message of the lifecycle event that a callback was
// registered for (remote_protocol.x: REMOTE_PROC_DOMAIN_EVENT_CALLBACK_LIFECYCLE).
const ProcLifecycle = 318

// parseEvent reads what all callback events begin with: the callback's id and
// the domain (name, UUID, id). It believes nothing.
func parseEvent(procedure uint32, body []byte) (Event, bool) {
	e := Event{Procedure: procedure}
	word := func() (uint32, bool) {
		if len(body) < 4 {
			return 0, false
		}
		v := binary.BigEndian.Uint32(body)
		body = body[4:]
		return v, true
	}
	if _, ok := word(); !ok {
		return e, false
	}
	n, ok := word()
	padded := (int64(n) + 3) &^ 3
	if !ok || n > maxName || padded+16+4 > int64(len(body)) {
		return e, false
	}
	e.Name = string(body[:n])
	body = body[padded:]
	copy(e.UUID[:], body)
	body = body[16+4:]
	if procedure == ProcLifecycle {
		if e.Code, ok = word(); !ok {
			return e, false
		}
		if e.Detail, ok = word(); !ok {
			return e, false
		}
	}
	return e, true
}

// maxName bounds a domain's name in bytes; foreign ones may be long.
const maxName = 4096
