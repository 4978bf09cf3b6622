package api

import (
	"container/list"
	"net"
	"net/http"
	"sync"

	"hostler/agent/client"
)

// boundListener enforces the limits on connections and links each connection to
// its caller.
type boundListener struct {
	net.Listener
	caller func(peerCredentials) caller
	conns  *counter
	// refused is called for each rejected connection.
	refused func(p peerCredentials, reason string, err error)

	mu   sync.Mutex
	idle map[share]*list.List // of *peerConn, oldest first
}

// peerConn is a connection with its caller.
type peerConn struct {
	net.Conn
	caller caller
	once   sync.Once
	give   func()
	// place is the element in the list of idle connections, or nil while the
	// connection is busy.
	place *list.Element
}

// Close implements net.Conn.
func (c *peerConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.give)
	return err
}

// busyAnswer is the answer to a connection above the limits. The agent sends it
// without reading the request. It fits the socket's buffer, so the write cannot
// block.
const busyAnswer = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: " + client.ProblemType + "\r\nConnection: close\r\nContent-Length: 132\r\n\r\n" +
	`{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"too many connections to the agent",` + `"kind":"transient"}  ` + "\n"

// Accept returns the next connection within the limits. It answers and closes
// the others.
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uc, ok := c.(*net.UnixConn)
		if !ok {
			// Only unix sockets report their peer.
			l.refused(peerCredentials{}, "not a unix socket", nil)
			_ = c.Close()
			continue
		}
		p, err := peerOf(uc)
		if err != nil {
			l.refused(peerCredentials{}, "unknown peer", err)
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

// room reserves a place for a connection and reports whether it got one. If all
// places are taken and the share yields, room closes the longest idle
// connection. It chooses among the connections of the caller's uid if the limit
// per uid is reached, otherwise among all of the share.
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

// oldest returns the longest idle connection of a share, or nil if there is
// none. If own is true, it looks only at connections of the uid. The returned
// connection no longer counts as idle.
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

// leave removes a connection from the list of idle connections. The caller
// holds l.mu.
func (l *boundListener) leave(c *peerConn) {
	if c.place != nil {
		l.idle[c.caller.share()].Remove(c.place)
		c.place = nil
	}
}

// state is the server's ConnState callback. It records whether a connection is
// idle. A connection before its first request counts as idle, too.
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
