package hostnet

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"hostler/internal/fault"
)

// DefaultMTU is the MTU in bytes of a bridge without a declared MTU.
const DefaultMTU = 1500

const (
	maxName = 15 // IFNAMSIZ without the terminating zero
	// socketTimeout limits the wait for one answer of the kernel.
	socketTimeout = 10 * time.Second
	receiveBuffer = 4 << 20

	tableMain   = unix.RT_TABLE_MAIN
	protoKernel = unix.RTPROT_KERNEL
)

// Options select the network of a Host.
type Options struct {
	// NetNS is the file of a network namespace, e.g. /run/netns/NAME; empty
	// means the namespace of the process.
	NetNS string
	// Sys is the mount point of sysfs; empty means /sys.
	Sys string
	Log *slog.Logger
}

// Host reads and changes one network namespace. It is safe for concurrent use.
type Host struct {
	options Options
	sockets map[int]*nl.SocketHandle
}

// Open opens the network that o selects. Changes need CAP_NET_ADMIN; opening
// another namespace needs CAP_SYS_ADMIN.
func Open(o Options) (*Host, error) {
	o.Sys = cmp.Or(o.Sys, "/sys")
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	h := &Host{options: o}
	err := h.inNamespace(func(ns netns.NsHandle) error {
		s, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		h.sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}
		timeout := unix.NsecToTimeval(socketTimeout.Nanoseconds())
		_ = s.SetSendTimeout(&timeout)
		_ = s.SetReceiveTimeout(&timeout)
		_ = s.SetExtAck(true) // adds the kernel's reason to refusals
		// The larger buffer needs CAP_NET_ADMIN. Without this capability the host's
		// limit applies.
		_ = s.SetReceiveBufferSize(receiveBuffer, true)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open netlink: %w", err)
	}
	return h, nil
}

// Close closes the netlink socket.
func (h *Host) Close() {
	for _, s := range h.sockets {
		s.Close()
	}
}

func (h *Host) inNamespace(f func(netns.NsHandle) error) error {
	ns := netns.None()
	if h.options.NetNS != "" {
		var err error
		if ns, err = netns.GetFromPath(h.options.NetNS); err != nil {
			return err
		}
		defer func() { _ = ns.Close() }()
	}
	return f(ns)
}

// request sends one message and waits for the kernel's answer.
func (h *Host) request(ctx context.Context, kind uint16, flags int, answer uint16, parts ...nl.NetlinkRequestData) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	req := &nl.NetlinkRequest{
		NlMsghdr: unix.NlMsghdr{Len: unix.SizeofNlMsghdr, Type: kind, Flags: unix.NLM_F_REQUEST | uint16(flags)},
		Sockets:  h.sockets,
	}
	for _, part := range parts {
		req.AddData(part)
	}
	messages, err := req.Execute(unix.NETLINK_ROUTE, answer)
	if err != nil {
		return messages, err
	}
	return messages, nil
}

func transient(format string, args ...any) error {
	return fault.New(fault.Transient, format, args...)
}
