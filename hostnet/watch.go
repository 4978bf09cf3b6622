package hostnet

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Topic selects the kind of changes that a watch reports.
type Topic int

// The topics.
const (
	// Network covers links with their kernel settings (e.g. rp_filter),
	// addresses and routes.
	Network Topic = iota
	// Firewall covers all nftables tables, no matter which program changes them.
	Firewall
)

// Wake says that something changed.
type Wake struct {
	// Lost means that changes were missed, so the reader must look at everything.
	Lost bool
}

// Watch sends a Wake after each change. It closes the channel when the context
// ends. If the channel is closed earlier, the socket broke and the caller must
// call Watch again. Unread Wakes merge into a single Wake. A Wake has no
// details, so the reader must look at the host. The caller's own changes cause
// a Wake too.
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
				// The kernel dropped messages but keeps sending.
				offer(wakes, Wake{Lost: true})
			default:
				offer(wakes, Wake{Lost: true})
				return
			}
		}
	}()
	return wakes, nil
}

// offer sends a wake to the reader, merged with an unread wake.
func offer(wakes chan Wake, w Wake) {
	select {
	case old := <-wakes:
		w.Lost = w.Lost || old.Lost
	default:
	}
	wakes <- w // only this goroutine sends, so there is room
}
