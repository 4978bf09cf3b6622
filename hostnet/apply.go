package hostnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// Apply carries out one step. It is idempotent, so making a link, address or
// route that exists succeeds, and so does deleting one that is absent. Apply
// stamps or removes a bridge only if the bridge belongs to the stamp's
// namespace, which it checks immediately before; otherwise it returns a
// Conflict error. An error leaves the changes made so far in place.
func (h *Host) Apply(ctx context.Context, s Step) error {
	if err := h.apply(ctx, s); err != nil {
		return fmt.Errorf("cannot %s: %w", s, err)
	}
	h.options.Log.Info("network changed", "step", s.String())
	return nil
}

func (h *Host) apply(ctx context.Context, s Step) error {
	if s.Op == MakeBridge {
		return h.makeBridge(ctx, s)
	}
	l, err := h.link(ctx, s.Link)
	if err != nil {
		if absent(err) && (s.Op == RemoveBridge || s.Op == DeleteAddress || s.Op == DeleteRoute || s.Op == Release || s.Op == Rejoin || s.Op == RemovePair) {
			return nil
		}
		return err
	}
	switch s.Op {
	case StampBridge:
		return h.stamp(ctx, l, s.Stamp)
	case ClaimBridge:
		if l.Kind != "bridge" || l.Alias != "" && l.Alias != s.Stamp || l.MAC != s.MAC {
			return fault.New(fault.Conflict, "%s belongs to another program", l.Name)
		}
		return h.change(ctx, l.Index, unix.RTM_SETLINK, nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(s.Stamp)))
	case TuneBridge:
		// Disable the spanning tree first, because the kernel enforces a minimum
		// delay while the spanning tree is on.
		if err := h.change(ctx, l.Index, unix.RTM_NEWLINK, bridgeInfo(bridgeSTP)); err != nil {
			return err
		}
		return h.change(ctx, l.Index, unix.RTM_NEWLINK, bridgeInfo(bridgeDelay))
	case RemoveBridge:
		if err := sameOwner(l, s.Stamp); err != nil {
			return err
		}
		_, err = h.request(ctx, unix.RTM_DELLINK, unix.NLM_F_ACK, 0, linkHeader(l.Index))
		return unless(err, unix.ENODEV)
	case RemovePair:
		if l.pair == 0 { // a guest has got the other end meanwhile
			return nil
		}
		_, err = h.request(ctx, unix.RTM_DELLINK, unix.NLM_F_ACK, 0, linkHeader(l.Index))
		return unless(err, unix.ENODEV)
	case SetMAC:
		mac, err := net.ParseMAC(s.MAC)
		if err != nil {
			return err
		}
		return h.change(ctx, l.Index, unix.RTM_SETLINK, nl.NewRtAttr(unix.IFLA_ADDRESS, mac))
	case SetMTU:
		return h.change(ctx, l.Index, unix.RTM_SETLINK, numberAttribute(unix.IFLA_MTU, uint32(s.MTU)))
	case SetReversePath:
		return h.change(ctx, l.Index, unix.RTM_SETLINK, reversePathInfo(s.Value))
	case SetIPv6:
		return h.setIPv6(l.Name, *s.IPv6)
	case SetUp:
		header := linkHeader(l.Index)
		header.Flags, header.Change = unix.IFF_UP, unix.IFF_UP
		_, err = h.request(ctx, unix.RTM_NEWLINK, unix.NLM_F_ACK, 0, header)
		return err
	case Rejoin:
		if !guestPort(l.Link) {
			return fault.New(fault.Conflict, "%s is not a port of a guest", l.Name)
		}
		return unless(h.enslave(ctx, l.Index, s.Bridge), unix.ENODEV)
	case Enslave:
		return h.enslave(ctx, l.Index, s.Bridge)
	case Release:
		if err := h.change(ctx, l.Index, unix.RTM_SETLINK, numberAttribute(unix.IFLA_MASTER, 0)); err != nil {
			return err
		}
		return failpoint.Hit(failpoint.NetReleased)
	}
	return h.applyEntry(ctx, l.Index, s)
}

// applyEntry changes the addresses, routes and neighbours of a link.
func (h *Host) applyEntry(ctx context.Context, index int, s Step) error {
	switch s.Op {
	case AddAddress:
		_, err := h.request(ctx, unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, 0, addressMessage(index, *s.Address)...)
		if err := unless(err, unix.EEXIST); err != nil {
			return err
		}
		return failpoint.Hit(failpoint.NetAddressAdded)
	case DeleteAddress:
		if s.Heir != "" {
			h.awaitLocal(ctx, s.Heir, s.Address.Prefix.Addr())
		}
		_, err := h.request(ctx, unix.RTM_DELADDR, unix.NLM_F_ACK, 0, addressMessage(index, *s.Address)...)
		if err := unless(err, unix.EADDRNOTAVAIL); err != nil {
			return err
		}
		return failpoint.Hit(failpoint.NetAddressDeleted)
	case AddRoute:
		// Append the route. A replacement might hit another program's route to the
		// same network over another link.
		_, err := h.request(ctx, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND|unix.NLM_F_ACK, 0, routeMessage(index, *s.Route)...)
		if err := unless(err, unix.EEXIST); err != nil {
			return err
		}
		return failpoint.Hit(failpoint.NetRouteAdded)
	case DeleteRoute:
		_, err := h.request(ctx, unix.RTM_DELROUTE, unix.NLM_F_ACK, 0, routeMessage(index, *s.Route)...)
		return unless(err, unix.ESRCH)
	case AddNeighbour:
		return h.setNeighbour(ctx, index, *s.Neighbour, unix.NUD_PERMANENT)
	case LearnNeighbours:
		return h.learnNeighbours(ctx, index, s.Bridge)
	}
	return fmt.Errorf("there is no such step")
}

func (h *Host) setNeighbour(ctx context.Context, index int, n Neighbour, state uint16) error {
	parts, err := neighbourParts(index, n, state)
	if err != nil {
		return err
	}
	_, err = h.request(ctx, unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK, 0, parts...)
	return err
}

// learnNeighbours copies the neighbours of the link named by from to the link
// numbered index. The copies are stale entries, which the kernel checks on use.
// Since they only save time, failures are ignored.
func (h *Host) learnNeighbours(ctx context.Context, index int, from string) error {
	l, err := h.link(ctx, from)
	if err != nil {
		return err
	}
	all, err := dump(ctx, h, unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, &neighbourMessage{}, parseNeighbour)
	if err != nil {
		h.options.Log.Debug("neighbours not copied", "link", from, "error", err)
	}
	const known = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE
	for _, n := range all {
		if n.index == l.Index && n.state&known != 0 && n.MAC != "" {
			_ = h.setNeighbour(ctx, index, n.Neighbour, unix.NUD_STALE)
		}
	}
	return nil
}

func (h *Host) makeBridge(ctx context.Context, s Step) error {
	namespace, _, ok := ParseStamp(s.Stamp)
	if !ok {
		return fault.New(fault.Invalid, "%q is not a stamp", s.Stamp)
	}
	parts, err := newBridge(s.Link, s.MAC, s.MTU, halfMadeGroup(namespace))
	if err != nil {
		return err
	}
	_, err = h.request(ctx, unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, 0, parts...)
	if err := unless(err, unix.EEXIST); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.NetBridgeUnstamped); err != nil {
		return err
	}
	l, err := h.link(ctx, s.Link)
	if err != nil {
		return err
	}
	return h.stamp(ctx, l, s.Stamp)
}

func (h *Host) stamp(ctx context.Context, l seenLink, stamp string) error {
	if err := sameOwner(l, stamp); err != nil {
		return err
	}
	// Set the alias first, so that the group or the alias identifies the bridge
	// at any time.
	if err := h.change(ctx, l.Index, unix.RTM_SETLINK, nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(stamp))); err != nil {
		return err
	}
	return h.change(ctx, l.Index, unix.RTM_SETLINK, numberAttribute(unix.IFLA_GROUP, 0))
}

// sameOwner returns a Conflict error unless the link is a bridge of the stamp's
// namespace.
func sameOwner(l seenLink, stamp string) error {
	namespace, _, _ := ParseStamp(stamp)
	if namespace == "" || !Ours(namespace, l.Link) {
		return fault.New(fault.Conflict, "%s is not a bridge of hostler's namespace %s", l.Name, namespace)
	}
	return nil
}

func (h *Host) enslave(ctx context.Context, index int, bridge string) error {
	master, err := h.link(ctx, bridge)
	if err != nil {
		return err
	}
	if err := h.change(ctx, index, unix.RTM_SETLINK, numberAttribute(unix.IFLA_MASTER, uint32(master.Index))); err != nil {
		return err
	}
	return failpoint.Hit(failpoint.NetEnslaved)
}

func (h *Host) change(ctx context.Context, index int, kind uint16, attributes ...nl.NetlinkRequestData) error {
	_, err := h.request(ctx, kind, unix.NLM_F_ACK, 0, append([]nl.NetlinkRequestData{linkHeader(index)}, attributes...)...)
	return err
}

func linkHeader(index int) *nl.IfInfomsg {
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(index)
	return header
}

// setIPv6 writes the parameters to /proc/sys, because netlink only reads them. It does
// nothing for a link without IPv6.
func (h *Host) setIPv6(link string, want IPv6) error {
	return h.inside(func() error {
		for name, value := range map[string]int32{"accept_ra": want.AcceptRA, "autoconf": want.Autoconf, "use_tempaddr": want.TempAddresses} {
			err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", link, name), []byte(strconv.Itoa(int(value))), 0)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	})
}

func absent(err error) bool { return errors.Is(err, unix.ENODEV) }

// unless returns err, or nil if err is the error done. That error means that
// the work was already done.
func unless(err error, done error) error {
	if errors.Is(err, done) {
		return nil
	}
	return err
}
