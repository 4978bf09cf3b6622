package kvm_test

import (
	"encoding/binary"
	"encoding/xml"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"hostler/internal/hosttest"
)

// object is a storage pool or a network of the fake.
type object struct {
	xml          string
	runs, starts bool
}

// fakeLibvirt answers the calls of the initialiser and stores the definitions.
type fakeLibvirt struct {
	t      *testing.T
	socket string

	mu        sync.Mutex
	pools     map[string]*object
	networks  map[string]*object
	refuse    map[uint32]string // procedure -> why
	mutations []string
	asked     int           // number of requests for QEMU's capabilities
	thinking  chan struct{} // capabilities are answered after it is closed; nil: at once
}

func newFakeLibvirt(t *testing.T) *fakeLibvirt {
	t.Helper()
	dir := hosttest.SocketDir(t)
	return &fakeLibvirt{
		t: t, socket: filepath.Join(dir, "s"), pools: map[string]*object{}, networks: map[string]*object{}, refuse: map[uint32]string{},
	}
}

// listen opens the socket.
func (f *fakeLibvirt) listen() {
	f.t.Helper()
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go f.serve(conn)
		}
	}()
}

// The procedures that the initialiser calls (remote_protocol.x).
const (
	procOpen, procClose, procAuthList               = 1, 2, 66
	procPoolDefine, procPoolCreate, procPoolLookup  = 77, 78, 84
	procPoolStarts, procPoolSetStarts, procPoolRuns = 89, 90, 154
	procNetCreate, procNetDefine, procNetLookup     = 39, 41, 46
	procNetStarts, procNetSetStarts, procNetRuns    = 44, 48, 152
	errNoNetwork, errNoPool, errOperationFailed     = 43, 49, 9
	headerLength, statusOK, statusError, replyType  = 28, 0, 1, 1
	procCapabilities                                = 342
	positionProcedure, positionType, positionStatus = 12, 16, 24
)

func (f *fakeLibvirt) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		header := make([]byte, headerLength)
		if _, err := io.ReadFull(conn, header); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(header)-headerLength)
		if _, err := io.ReadFull(conn, body); err != nil {
			return
		}
		if binary.BigEndian.Uint32(header[positionProcedure:]) == procCapabilities {
			f.think()
		}
		answer, code, why := f.answer(binary.BigEndian.Uint32(header[positionProcedure:]), &reader{body})
		status := uint32(statusOK)
		if code != 0 {
			status = statusError
			answer = number(nil, code)
			answer = number(answer, 0) // domain
			answer = number(answer, 1) // a message follows
			answer = number(text(answer, why), 2)
		}
		binary.BigEndian.PutUint32(header, uint32(headerLength+len(answer)))
		binary.BigEndian.PutUint32(header[positionType:], replyType)
		binary.BigEndian.PutUint32(header[positionStatus:], status)
		if _, err := conn.Write(append(header, answer...)); err != nil {
			return
		}
	}
}

// think counts a request for QEMU's capabilities and waits until they are
// known.
func (f *fakeLibvirt) think() {
	f.mu.Lock()
	f.asked++
	thinking := f.thinking
	f.mu.Unlock()
	if thinking != nil {
		<-thinking
	}
}

// answer carries out a call.
func (f *fakeLibvirt) answer(procedure uint32, in *reader) (out []byte, code uint32, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if why := f.refuse[procedure]; why != "" {
		return nil, errOperationFailed, why
	}
	kind, all, missing := "pool", f.pools, uint32(errNoPool)
	switch procedure {
	case procNetCreate, procNetDefine, procNetLookup, procNetStarts, procNetSetStarts, procNetRuns:
		kind, all, missing = "network", f.networks, errNoNetwork
	}
	switch procedure {
	case procOpen, procClose:
		return nil, 0, ""
	case procCapabilities:
		return text(nil, "<domainCapabilities/>"), 0, ""
	case procAuthList:
		return number(number(nil, 1), 0), 0, ""
	case procPoolDefine, procNetDefine:
		definition := in.text()
		var named struct {
			Name string `xml:"name"`
		}
		if err := xml.Unmarshal([]byte(definition), &named); err != nil {
			f.t.Error(err)
		}
		all[named.Name] = &object{xml: definition}
		f.mutations = append(f.mutations, "define "+kind+" "+named.Name)
		return reference(named.Name), 0, ""
	}
	name := in.text()
	o := all[name]
	if o == nil {
		return nil, missing, "no " + kind + " of that name"
	}
	in.bytes(16) // the UUID
	switch procedure {
	case procPoolLookup, procNetLookup:
		return reference(name), 0, ""
	case procPoolRuns, procNetRuns:
		return number(nil, flag(o.runs)), 0, ""
	case procPoolStarts, procNetStarts:
		return number(nil, flag(o.starts)), 0, ""
	case procPoolCreate, procNetCreate:
		o.runs = true
		f.mutations = append(f.mutations, "start "+kind+" "+name)
	case procPoolSetStarts, procNetSetStarts:
		o.starts = true
		f.mutations = append(f.mutations, "autostart "+kind+" "+name)
	default:
		f.t.Errorf("unexpected procedure %d", procedure)
	}
	return nil, 0, ""
}

// String lists the changes.
func (f *fakeLibvirt) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.mutations, ", ")
}

func reference(name string) []byte { return append(text(nil, name), make([]byte, 16)...) }

func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

// number and text append to a message in XDR (RFC 4506).
func number(to []byte, n uint32) []byte { return binary.BigEndian.AppendUint32(to, n) }

func text(to []byte, s string) []byte {
	to = append(number(to, uint32(len(s))), s...)
	return append(to, make([]byte, (4-len(s)%4)%4)...)
}

// reader parses a call's arguments. Missing bytes read as zero.
type reader struct{ rest []byte }

func (r *reader) bytes(n int) []byte {
	n = min(n, len(r.rest))
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) text() string {
	length := r.bytes(4)
	if len(length) < 4 {
		return ""
	}
	n := int(binary.BigEndian.Uint32(length))
	return strings.Clone(string(r.bytes((n + 3) / 4 * 4)[:n]))
}
