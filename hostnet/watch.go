package hostnet

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Topic is what a watch wakes for.
type Topic int

// The topics.
const (
	// Network is links with what the kernel holds of them, such as rp_filter,
	// addresses and routes.
	Network Topic = iota
	// Firewall is the tables of nftables, whoever changes them.
	Firewall
)

// Wake says that something changed.
type Wake struct {
	// Lost says that changes were missed: everything must be looked at.
	Lost bool
}

// Watch sends a Wake after each change until the context ends, when it closes
// the channel; a channel closed earlier means that the socket broke and that
// Watch is to be called again. Wakes that nobody has taken yet become one. It
// tells of no details: whoever wakes looks at the host itself. What the caller
// itself changes wakes it too.
func (h *Host) Watch(ctx context.Context, topic Topic) (<-chan Wake, error) {
	protocol, groups := unix.NETLINK_ROUTE, []uint{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	}
	if topic == Firewall {
		protocol, groups = unix.NETLINK_NETFILTER, []uint{unix.NFNLGRP_NFTABLES}
	}
	var socket *nl.NetlinkSocket
	err := h.inNamespace(func(ns netns.NsHandle) (err error) {
		socket, err = nl.SubscribeAt(ns, netns.None(), protocol, groups...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot watch the network: %w", err)
	}
	_ = socket.SetReceiveBufferSize(receiveBuffer, true)
	wakes := make(chan Wake, 1)
	stop := context.AfterFunc(ctx, socket.Close)
	go func() {
		defer close(wakes)
		defer func() {
			if stop() {
				socket.Close()
			}
		}()
		for {
			_, _, err := socket.Receive()
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				offer(wakes, Wake{})
			case errors.Is(err, unix.ENOBUFS):
				// The kernel dropped messages and goes on.
				offer(wakes, Wake{Lost: true})
			default:
				offer(wakes, Wake{Lost: true})
				return
			}
		}
	}()
	return wakes, nil
}

// offer leaves a wake for the reader, together with one not yet taken.
func offer(wakes chan Wake, w Wake) {
	select {
	case old := <-wakes:
		w.Lost = w.Lost || old.Lost
	default:
	}
	wakes <- w // only this goroutine sends, so there is room
}
