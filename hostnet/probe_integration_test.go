//go:build integration

package hostnet

import (
	"encoding/binary"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/hostnet/nettest"
)

const (
	probeEvery = 2 * time.Millisecond
	probeWait  = 20 * time.Second
)

// probe sends an echo request to the peer every 2 ms. The peer's kernel answers
// and the local kernel timestamps the answer, so a busy machine that delays
// both programs causes no gap.
type probe struct {
	t    *testing.T
	fd   int
	done chan struct{}
	wg   sync.WaitGroup

	mu   sync.Mutex
	sent []time.Time
	came []time.Time // when the answer to sent[i] came; zero without one
	last int         // how many answers have come
}

func newProbe(t *testing.T, n *nettest.Namespace, peer string) *probe {
	t.Helper()
	to := netip.MustParseAddr(peer)
	family, protocol, kind := unix.AF_INET, unix.IPPROTO_ICMP, byte(8)
	var sockaddr unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(to.AsSlice())}
	if to.Is6() {
		family, protocol, kind = unix.AF_INET6, unix.IPPROTO_ICMPV6, 128
		sockaddr = &unix.SockaddrInet6{Addr: to.As16()}
	}
	p := &probe{t: t, done: make(chan struct{})}
	must(t, n.Do(func() (err error) {
		p.fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		return err
	}))
	must(t, unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))
	must(t, unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	p.wg.Go(func() { p.send(kind, sockaddr) })
	p.wg.Go(func() { p.receive(to.Is6()) })
	return p
}

func (p *probe) send(kind byte, to unix.Sockaddr) {
	runtime.LockOSThread() // never unlocked: the thread ends with its priority
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 50}, 0)
	for i := 0; ; i++ {
		select {
		case <-p.done:
			return
		default:
		}
		echo := make([]byte, 16)
		echo[0] = kind
		binary.BigEndian.PutUint16(echo[4:], uint16(os.Getpid()))
		binary.BigEndian.PutUint64(echo[8:], uint64(i))
		if kind == 8 {
			binary.BigEndian.PutUint16(echo[2:], checksum(echo))
		}
		p.mu.Lock()
		p.sent, p.came = append(p.sent, time.Now()), append(p.came, time.Time{})
		p.mu.Unlock()
		_ = unix.Sendto(p.fd, echo, 0, to)
		rest := unix.NsecToTimespec(probeEvery.Nanoseconds())
		_ = unix.Nanosleep(&rest, nil)
	}
}

func (p *probe) receive(six bool) {
	buf, control := make([]byte, 256), make([]byte, 256)
	for {
		select {
		case <-p.done:
			return
		default:
		}
		size, controls, _, _, err := unix.Recvmsg(p.fd, buf, control, 0)
		if err != nil {
			continue // the receive timeout
		}
		m := buf[:size]
		reply := byte(129)
		if !six {
			reply, m = 0, m[min(20, len(m)):] // without the IPv4 header
		}
		if len(m) < 16 || m[0] != reply {
			continue
		}
		messages, err := unix.ParseSocketControlMessage(control[:controls])
		if err != nil || len(messages) == 0 || len(messages[0].Data) < 16 {
			continue
		}
		at := time.Unix(int64(binary.NativeEndian.Uint64(messages[0].Data)), int64(binary.NativeEndian.Uint64(messages[0].Data[8:])))
		p.mu.Lock()
		if i := int(binary.BigEndian.Uint64(m[8:])); i < len(p.came) && p.came[i].IsZero() {
			p.came[i] = at
			p.last++
		}
		p.mu.Unlock()
	}
}

// answered waits until that many more probes have been answered.
func (p *probe) answered(more int) {
	p.t.Helper()
	deadline, start := time.Now().Add(probeWait), -1
	for {
		p.mu.Lock()
		if start < 0 {
			start = p.last
		}
		now := p.last
		p.mu.Unlock()
		if now >= start+more {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatal("the peer does not answer any more")
		}
		time.Sleep(probeEvery)
	}
}

// stop ends the probing and returns the longest gap: the time from a probe to
// its answer, or from a lost probe to the next answered probe.
func (p *probe) stop() time.Duration {
	close(p.done)
	p.wg.Wait()
	_ = unix.Close(p.fd)
	var longest time.Duration
	firstLost, last := -1, len(p.came)
	for last > 0 && p.came[last-1].IsZero() {
		last-- // under way when it ended
	}
	for i := range p.came[:last] {
		switch {
		case p.came[i].IsZero() && firstLost < 0:
			firstLost = i
		case !p.came[i].IsZero():
			longest = max(longest, p.came[i].Sub(p.sent[i].Round(0)))
			if firstLost >= 0 {
				longest = max(longest, p.sent[i].Sub(p.sent[firstLost]))
			}
			firstLost = -1
		}
	}
	return longest
}

func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
