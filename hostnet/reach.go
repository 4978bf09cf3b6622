package hostnet

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// resolvePoll is the interval of reading the kernel's neighbour entry.
	resolvePoll = 20 * time.Millisecond
	// askEvery is the interval of repeated requests to a neighbour that failed
	// to answer, or to a silent host.
	askEvery = 200 * time.Millisecond
	useFlag  = 1 // NTF_USE
)

// Way returns the link through which packets to an address leave, and the
// gateway of these packets. The gateway is invalid if the address is directly
// on the link.
func (h *Host) Way(ctx context.Context, to netip.Addr) (link string, gateway netip.Addr, err error) {
	family := unix.AF_INET
	if to.Is6() {
		family = unix.AF_INET6
	}
	header := &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family), Dst_len: uint8(to.BitLen())}}
	messages, err := h.request(ctx, unix.RTM_GETROUTE, 0, unix.RTM_NEWROUTE, header, nl.NewRtAttr(unix.RTA_DST, to.AsSlice()))
	if err != nil {
		return "", netip.Addr{}, fmt.Errorf("cannot find a way to %s: %w", to, err)
	}
	index := 0
	for _, m := range messages {
		if len(m) < sizeRoute || m[7] != unix.RTN_UNICAST {
			continue
		}
		attributes(m[sizeRoute:], func(kind uint16, value []byte) {
			switch kind {
			case unix.RTA_OIF:
				index = int(number(value))
			case unix.RTA_GATEWAY:
				gateway = address(value)
			}
		})
	}
	if index != 0 {
		all, err := dump(ctx, h, unix.RTM_GETLINK, unix.RTM_NEWLINK, nl.NewIfInfomsg(unix.AF_UNSPEC), parseLink)
		if err != nil {
			return "", netip.Addr{}, fmt.Errorf("cannot list network devices: %w", err)
		}
		for _, l := range all {
			if l.Index == index {
				return l.Name, gateway, nil
			}
		}
	}
	return "", netip.Addr{}, fmt.Errorf("cannot find a way to %s: it is not the address of another host", to)
}

// Resolve asks a neighbour for its hardware address, even if the kernel has a
// valid entry, and waits for the answer until ctx ends. A permanent entry, or
// an entry that needs no ARP, counts as an answer.
func (h *Host) Resolve(ctx context.Context, link string, neighbour netip.Addr) error {
	l, err := h.link(ctx, link)
	if err != nil {
		return err
	}
	tick := time.NewTicker(resolvePoll)
	defer tick.Stop()
	var asked time.Time
	for {
		known, state, err := h.neighbour(ctx, l.Index, neighbour)
		if err != nil {
			return err
		}
		switch {
		case state&(unix.NUD_PERMANENT|unix.NUD_NOARP) != 0, !asked.IsZero() && state&unix.NUD_REACHABLE != 0:
			return nil
		case known.MAC != "" && (asked.IsZero() && state&unix.NUD_FAILED == 0 || state&(unix.NUD_STALE|unix.NUD_DELAY) != 0 && time.Since(asked) > askEvery):
			// Probe a cached hardware address now, e.g. of a router's advertisement. The
			// kernel would do so only some seconds after its next use.
			if err := h.setNeighbour(ctx, l.Index, known, unix.NUD_PROBE); err != nil {
				return fmt.Errorf("cannot ask %s on %s: %w", neighbour, link, err)
			}
			asked = time.Now()
		case asked.IsZero() || state&unix.NUD_FAILED != 0 && time.Since(asked) > askEvery || state == unix.NUD_NONE:
			if err := h.useNeighbour(ctx, l.Index, neighbour); err != nil {
				return fmt.Errorf("cannot ask %s on %s: %w", neighbour, link, err)
			}
			asked = time.Now()
		}
		select {
		case <-ctx.Done():
			return transient("%s does not answer on %s", neighbour, link)
		case <-tick.C:
		}
	}
}

func (h *Host) neighbour(ctx context.Context, index int, address netip.Addr) (Neighbour, uint16, error) {
	all, err := dump(ctx, h, unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, &neighbourMessage{}, parseNeighbour)
	if err != nil {
		return Neighbour{}, 0, fmt.Errorf("cannot list neighbours: %w", err)
	}
	for _, n := range all {
		if n.index == index && n.Address == address {
			return n.Neighbour, n.state, nil
		}
	}
	return Neighbour{Address: address}, unix.NUD_NONE, nil
}

// useNeighbour makes the kernel request the hardware address as if a packet
// waited for it.
func (h *Host) useNeighbour(ctx context.Context, index int, address netip.Addr) error {
	family := unix.AF_INET
	if address.Is6() {
		family = unix.AF_INET6
	}
	message := &neighbourMessage{family: uint8(family), index: int32(index), flags: useFlag}
	_, err := h.request(ctx, unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK, 0,
		message, nl.NewRtAttr(unix.NDA_DST, address.AsSlice()))
	return err
}

// Echo sends ICMP echo requests to a host until a reply comes or ctx ends. It
// needs CAP_NET_RAW.
func (h *Host) Echo(ctx context.Context, to netip.Addr) error {
	family, protocol, kind := unix.AF_INET, unix.IPPROTO_ICMP, byte(8)
	var sockaddr unix.Sockaddr
	if to.Is6() {
		family, protocol, kind = unix.AF_INET6, unix.IPPROTO_ICMPV6, 128
		sockaddr = &unix.SockaddrInet6{Addr: to.As16()}
	} else {
		sockaddr = &unix.SockaddrInet4{Addr: to.As4()}
	}
	fd := -1
	err := h.inside(func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot send to %s: %w", to, err)
	}
	defer func() { _ = unix.Close(fd) }()
	wait := unix.NsecToTimeval(askEvery.Nanoseconds())
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)
	token := rand.Uint64() //nolint:gosec // tells our echo from others', hides nothing
	for ctx.Err() == nil {
		_ = unix.Sendto(fd, echoRequest(kind, token), 0, sockaddr)
		for end := time.Now().Add(askEvery); time.Now().Before(end); {
			if answered(fd, to.Is6(), token) {
				return nil
			}
		}
	}
	return transient("%s does not answer", to)
}

func echoRequest(kind byte, token uint64) []byte {
	m := make([]byte, 16)
	m[0] = kind
	binary.BigEndian.PutUint64(m[8:], token)
	if kind == 8 { // for IPv6 the kernel computes the checksum
		var sum uint32
		for i := 0; i < len(m); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(m[i:]))
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		binary.BigEndian.PutUint16(m[2:], ^uint16(sum))
	}
	return m
}

// answered reads one message and reports whether it is the reply to our
// request.
func answered(fd int, six bool, token uint64) bool {
	buffer := make([]byte, 128)
	size, _, err := unix.Recvfrom(fd, buffer, 0)
	if err != nil {
		return false
	}
	m, reply := buffer[:size], byte(129)
	if !six {
		if len(m) == 0 {
			return false
		}
		m, reply = m[min(int(m[0]&15)*4, len(m)):], 0 // skip the IPv4 header
	}
	return len(m) >= 16 && m[0] == reply && binary.BigEndian.Uint64(m[8:]) == token
}

// inside runs f on a thread in the host's network namespace; sockets that f
// opens stay there.
func (h *Host) inside(f func() error) error {
	if h.options.NetNS == "" {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		done <- h.inNamespace(func(ns netns.NsHandle) error {
			if err := netns.Set(ns); err != nil {
				return err
			}
			return f()
		})
	}()
	return <-done
}
