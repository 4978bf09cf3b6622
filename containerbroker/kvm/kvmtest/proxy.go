package kvmtest

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Fault is a way in which the proxy corrupts an answer.
type Fault string

// The faults that a proxy can cause.
const (
	// Lose drops the connection instead of passing on the answer, after libvirt
	// has carried out the call.
	Lose Fault = "lose"
	// Truncate passes on half of the answer and drops the connection.
	Truncate Fault = "truncate"
	// Oversize answers with a frame whose header says that it is 4 GiB long.
	// Undersize answers with a frame whose header says that it is shorter than
	// the header itself.
	Oversize  Fault = "oversize"
	Undersize Fault = "undersize"
	// Garbage answers with a frame of the right length and invalid content.
	Garbage Fault = "garbage"
	// Hang gives no answer and keeps the connection open.
	Hang Fault = "hang"
)

// The procedures of libvirt's protocol for which tests set rules
// (remote_protocol.x).
const (
	ProcOpen          = 1
	ProcGetVersion    = 157
	ProcAllStats      = 344
	ProcDefine        = 350
	ProcCreate        = 196
	ProcVolumeCreate  = 93
	ProcSetMetadata   = 264
	ProcUndefineFlags = 231
	ProcDestroyFlags  = 234
	ProcVolumeRead    = 209
)

// reading lists the procedures that change nothing. Every other procedure may
// change something.
var reading = map[uint32]bool{
	1: true, 2: true, 3: true, 4: true, 60: true, 66: true, 157: true, // the connection
	14: true, 23: true, 212: true, 265: true, 273: true, 316: true, 317: true, 344: true, 353: true, // domains
	43: true, 44: true, 46: true, 152: true, // networks
	84: true, 88: true, 89: true, 95: true, 98: true, 99: true, 100: true, 154: true, 282: true, // pools and volumes
	141: true, 145: true, 147: true, // secrets
}

// Proxy stands between a driver and libvirt's socket.
type Proxy struct {
	// Socket is the proxy's own socket.
	Socket string

	t      testing.TB
	target string

	mu     sync.Mutex
	rules  map[uint32][]Fault
	always map[uint32]Fault
	mute   bool
	counts map[uint32]int
	conns  map[net.Conn]bool
}

// NewProxy returns a proxy in front of the socket target. The proxy ends with
// the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "kvmproxy") //nolint:usetesting // a socket path must be short
	check(t, "make the proxy's folder", err)
	p := &Proxy{Socket: filepath.Join(dir, "s"), t: t, target: target, rules: map[uint32][]Fault{}, always: map[uint32]Fault{}, counts: map[uint32]int{}, conns: map[net.Conn]bool{}}
	listener, err := net.Listen("unix", p.Socket)
	check(t, "listen", err)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Cut()
		_ = os.RemoveAll(dir)
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return p
}

// Add makes the next answers to a procedure fail, one fault after the other.
func (p *Proxy) Add(procedure uint32, faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules[procedure] = append(p.rules[procedure], faults...)
}

// Break makes every answer to a procedure fail until Heal().
func (p *Proxy) Break(procedure uint32, fault Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.always[procedure] = fault
}

// Mute drops all events until Heal(). Calls are still answered.
func (p *Proxy) Mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = true
}

// Unused returns, by procedure, how many of the faults given to Add() have not
// occurred yet.
func (p *Proxy) Unused() map[uint32]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := map[uint32]int{}
	for procedure, faults := range p.rules {
		if len(faults) > 0 {
			left[procedure] = len(faults)
		}
	}
	return left
}

// Heal removes all faults.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.rules)
	clear(p.always)
	p.mute = false
}

// Mutations returns how many calls that may change something were made since
// Calls() was last called.
func (p *Proxy) Mutations() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for procedure, times := range p.counts {
		if !reading[procedure] {
			n += times
		}
	}
	return n
}

// Count returns how often a procedure was called since Calls() was last called.
func (p *Proxy) Count(procedure uint32) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[procedure]
}

// Calls returns the total number of calls and the number for each procedure,
// since Calls() was last called.
func (p *Proxy) Calls() (total int, each map[uint32]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	each, p.counts = p.counts, map[uint32]int{}
	for _, n := range each {
		total += n
	}
	return total, each
}

// Open returns the number of the driver's open connections.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2 // conns also has a connection to libvirt for each
}

// Cut drops every connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("unix", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	done := func() {
		_ = client.Close()
		_ = server.Close()
		p.mu.Lock()
		delete(p.conns, client)
		delete(p.conns, server)
		p.mu.Unlock()
	}
	go func() {
		defer done()
		for {
			frame, err := readFrame(client)
			if err != nil {
				return
			}
			p.mu.Lock()
			if kindOf(frame) == call { // data of a stream does not count
				p.counts[procedureOf(frame)]++
			}
			p.mu.Unlock()
			if _, err := server.Write(frame); err != nil {
				return
			}
		}
	}()
	defer done()
	for {
		frame, err := readFrame(server)
		if err != nil {
			return
		}
		if !p.answer(client, frame) {
			return
		}
	}
}

// answer passes a frame on to the client, after applying the fault that a rule
// sets. It returns false if the connection must be closed.
func (p *Proxy) answer(client net.Conn, frame []byte) bool {
	var fault Fault
	p.mu.Lock()
	kind := kindOf(frame)
	if kind == message && p.mute {
		p.mu.Unlock()
		return true
	}
	if proc := procedureOf(frame); kind == reply {
		fault = p.always[proc]
		if rules := p.rules[proc]; len(rules) > 0 {
			fault, p.rules[proc] = rules[0], rules[1:]
		}
	}
	p.mu.Unlock()
	switch fault {
	case Lose:
		return false
	case Truncate:
		_, _ = client.Write(frame[:len(frame)/2])
		return false
	case Hang:
		return true
	case Oversize:
		binary.BigEndian.PutUint32(frame, 0xffffffff)
	case Undersize:
		binary.BigEndian.PutUint32(frame, 5)
	case Garbage:
		for i := 28; i < len(frame); i++ {
			frame[i] ^= 0x5a
		}
	}
	_, err := client.Write(frame)
	return err == nil
}

// The kinds of frames (enum virNetMessageType).
const (
	call    = 0
	reply   = 1
	message = 2
)

func kindOf(frame []byte) uint32 { return binary.BigEndian.Uint32(frame[16:]) }

func procedureOf(frame []byte) uint32 { return binary.BigEndian.Uint32(frame[12:]) }

func readFrame(r io.Reader) ([]byte, error) {
	head := make([]byte, 28)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head)
	if length < 28 || length > 64<<20 {
		return nil, io.ErrUnexpectedEOF
	}
	frame := make([]byte, length)
	copy(frame, head)
	_, err := io.ReadFull(r, frame[28:])
	return frame, err
}
