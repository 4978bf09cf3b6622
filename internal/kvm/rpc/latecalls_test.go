package rpc

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/internal/fault"
)

// slowLibvirt answers the calls of connecting at once, and every other call
// when its gate is open.
type slowLibvirt struct {
	socket string
	gate   chan struct{}
	calls  atomic.Int64
}

func newSlowLibvirt(t *testing.T) *slowLibvirt {
	t.Helper()
	s := &slowLibvirt{socket: filepath.Join(t.TempDir(), "s"), gate: make(chan struct{})}
	listener, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

// The procedures of connecting, and the offsets in a frame (remote_protocol.x).
const (
	procOpen, procClose, procAuthList = 1, 2, 66
	slowHeader, atProcedure, atType   = 28, 12, 16
	typeReply                         = 1
)

func (s *slowLibvirt) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		header := make([]byte, slowHeader)
		if _, err := io.ReadFull(conn, header); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(header))-slowHeader); err != nil {
			return
		}
		var body []byte
		switch binary.BigEndian.Uint32(header[atProcedure:]) {
		case procOpen, procClose:
		case procAuthList:
			body = []byte{0, 0, 0, 1, 0, 0, 0, 0}
		default:
			s.calls.Add(1)
			<-s.gate
			body = make([]byte, 8) // a version
		}
		binary.BigEndian.PutUint32(header, uint32(slowHeader+len(body)))
		binary.BigEndian.PutUint32(header[atType:], typeReply)
		if _, err := conn.Write(append(header, body...)); err != nil {
			return
		}
	}
}

// C3: a call that libvirt does not answer in time is not repeated while it
// hangs, so that no retry takes another of libvirt's workers. Calls of another
// kind are made, and so is the same call once the late call is answered.
func TestHangingCallIsNotRepeated(t *testing.T) {
	s := newSlowLibvirt(t)
	var p LateCalls
	define := func(what string, limit time.Duration) error {
		_, err := CallUnlessLate(t.Context(), &p, s.socket, 10*time.Second, limit, what, func(l *libvirt.Libvirt) (uint64, error) { return l.ConnectGetVersion() })
		return err
	}
	if err := define("define the domain", 20*time.Millisecond); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "cannot define the domain: libvirt gave no answer within 20ms") {
		t.Errorf("error %v", err)
	}
	for range 5 {
		if err := define("define the domain", time.Minute); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "is not repeated") {
			t.Errorf("error %v", err)
		}
	}
	if n := s.calls.Load(); n != 1 {
		t.Errorf("%d calls while the first hangs", n)
	}
	if err := define("start guest web", 20*time.Millisecond); err == nil || s.calls.Load() != 2 {
		t.Errorf("another kind of call: %v after %d calls", err, s.calls.Load())
	}
	close(s.gate)
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := define("define the domain", time.Minute)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the answer: %v", err)
		}
	}
}
