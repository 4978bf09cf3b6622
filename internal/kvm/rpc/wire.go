package rpc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
)

// The header of a frame in libvirt's protocol consists of the big-endian words
// length, program, version, procedure, type, serial and status. The length
// includes the header.
const (
	frameHeader = 28
	// maxFrame bounds a frame in bytes. libvirt's own limit is 32 MiB; the
	// answers to hostler's calls are far smaller.
	maxFrame = 16 << 20

	programRemote = 0x20008086
	typeMessage   = 2
)

// errFrame means that the data is not libvirt's protocol.
var errFrame = errors.New("libvirt sent a frame of impossible length")

// wire is a connection to libvirt that passes on only well-formed frames,
// because the library trusts a frame's length without any check. It removes
// events from the stream and passes them to onEvent, because the library queues
// events without a limit. Only one goroutine reads from it.
type wire struct {
	net.Conn
	onEvent func(Event)
	pending bytes.Buffer
	failed  error
}

// Read implements io.Reader. It returns data of complete frames only.
func (w *wire) Read(p []byte) (int, error) {
	for w.pending.Len() == 0 {
		if w.failed == nil {
			w.failed = w.frame()
		}
		if w.failed != nil {
			_ = w.Close()
			// Return plain io.EOF, because the library retries for ever after some
			// errors of package net.
			return 0, io.EOF
		}
	}
	return w.pending.Read(p)
}

// frame reads the next frame and, unless it is an event, queues it for the
// library.
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
	// CopyN allocates as data arrives, so a large length alone costs no memory.
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

// counted lists the procedures whose answers begin with the length of a text or
// a list (remote_protocol.x). The library allocates memory for this length
// before it checks whether the data arrived.
var counted = map[uint32]bool{
	14: true, 23: true, 41: true, 46: true, 66: true, 77: true, 84: true, 88: true, 93: true, 95: true,
	145: true, 196: true, 273: true, 282: true, 344: true, 350: true,
}

// plausible reports whether a frame is acceptable. A successful answer is not
// acceptable if it claims more elements than its frame can hold.
func plausible(frame []byte) bool {
	word := func(at int) uint32 { return binary.BigEndian.Uint32(frame[at:]) }
	const reply, good = 1, 0
	if word(4) != programRemote || word(16) != reply || word(24) != good || !counted[word(12)] {
		return true
	}
	return len(frame) >= frameHeader+4 && int64(word(frameHeader)) <= int64(len(frame)-frameHeader-4)
}

// Event is a domain event, as read from its frame. Code and Detail are set only
// for lifecycle events.
type Event struct {
	Procedure    uint32
	Name         string
	UUID         [16]byte
	Code, Detail uint32
}

// ProcLifecycle is the procedure number of a lifecycle event for a registered
// callback (remote_protocol.x: REMOTE_PROC_DOMAIN_EVENT_CALLBACK_LIFECYCLE).
const ProcLifecycle = 318

// parseEvent reads the common beginning of all callback events, which is the
// callback's id and the domain (name, UUID, id). It checks every length, and
// returns false for a malformed event.
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

// maxName bounds a domain's name in bytes; foreign domains may have long names.
const maxName = 4096
