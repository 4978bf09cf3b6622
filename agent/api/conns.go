package api

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// boundListener lets no more than the allowed connections in and ties each to
// its caller.
type boundListener struct {
	net.Listener
	caller func(Peer) caller
	conns  *counter
	// refused is called with the connections that are turned away.
	refused func(p Peer, reason string, err error)

	mu   sync.Mutex
	idle map[share]*list.List // of *peerConn, the oldest first
}

func newBoundListener(conns *counter, callerOf func(Peer) caller, refused func(Peer, string, error)) *boundListener {
	return &boundListener{caller: callerOf, conns: conns, refused: refused, idle: map[share]*list.List{}}
}

// peerConn is a connection whose caller is known.
type peerConn struct {
	net.Conn
	caller caller
	once   sync.Once
	give   func()
	// place is its place among the idle connections; nil: it is not idle.
	place *list.Element
}

// Close implements net.Conn.
func (c *peerConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.give)
	return err
}

// busyAnswer is sent without reading the request, and fits the socket's
// buffer, so that it cannot block.
const busyAnswer = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: " + problemType + "\r\nConnection: close\r\nContent-Length: 132\r\n\r\n" +
	`{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"too many connections to the agent",` + `"kind":"transient"}  ` + "\n"

// Accept returns the next connection within the bounds.
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uc, ok := c.(*net.UnixConn)
		if !ok {
			// Only unix sockets know who is there.
			l.refused(Peer{}, "not a unix socket", nil)
			_ = c.Close()
			continue
		}
		p, err := peerOf(uc)
		if err != nil {
			l.refused(Peer{}, "unknown peer", err)
			_ = c.Close()
			continue
		}
		pc := &peerConn{Conn: c, caller: l.caller(p)}
		pc.give = func() {
			l.busy(pc)
			l.conns.give(pc.caller.share(), p.UID)
		}
		if !l.room(pc.caller) {
			l.refused(p, "too many connections", nil)
			_, _ = c.Write([]byte(busyAnswer))
			_ = c.Close()
			continue
		}
		return pc, nil
	}
}

// room takes room for a connection. Where there is none and the share yields,
// its oldest idle connection is closed, the caller's own where it is the
// caller's bound that is reached.
func (l *boundListener) room(c caller) bool {
	s := c.share()
	if taken, _ := l.conns.take(s, c.UID); taken {
		return true
	}
	if !parts[s].yields {
		return false
	}
	oldest := l.oldest(s, c.UID, l.conns.full(s, c.UID))
	if oldest == nil {
		return false
	}
	_ = oldest.Close()
	taken, _ := l.conns.take(s, c.UID)
	return taken
}

// oldest is the connection of a share, or of one uid of it, that is idle for the
// longest time; nil without one. It counts as busy from then on.
func (l *boundListener) oldest(s share, uid uint32, own bool) *peerConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle[s] == nil {
		return nil
	}
	for e := l.idle[s].Front(); e != nil; e = e.Next() {
		if c := e.Value.(*peerConn); !own || c.caller.UID == uid {
			l.leave(c)
			return c
		}
	}
	return nil
}

func (l *boundListener) busy(c *peerConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(c)
}

// leave takes a connection from among the idle; l.mu is held.
func (l *boundListener) leave(c *peerConn) {
	if c.place != nil {
		l.idle[c.caller.share()].Remove(c.place)
		c.place = nil
	}
}

// state notes whether a connection has a request: it is the server's ConnState.
// A connection is idle, too, before its first request.
func (l *boundListener) state(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*peerConn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(c)
	if state != http.StateNew && state != http.StateIdle {
		return
	}
	s := c.caller.share()
	if l.idle[s] == nil {
		l.idle[s] = list.New()
	}
	c.place = l.idle[s].PushBack(c)
}
