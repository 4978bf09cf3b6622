package hostnet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	dumpTries = 5
	// dumpWait is the longest pause before the next try.
	dumpWait = 20 * time.Millisecond
)

// Observe reads all links, addresses, routes and permanent neighbours, each
// table in one dump. It repeats a dump that a change interrupted. If all tries
// are interrupted, the error is transient and the caller must conclude nothing.
func (h *Host) Observe(ctx context.Context) (Observed, error) {
	var o Observed
	names := map[int]string{}
	links, err := dump(ctx, h, unix.RTM_GETLINK, unix.RTM_NEWLINK, nl.NewIfInfomsg(unix.AF_UNSPEC), parseLink)
	if err != nil {
		return Observed{}, fmt.Errorf("cannot list network devices: %w", err)
	}
	kinds := map[int]string{}
	for _, l := range links {
		names[l.Index], kinds[l.Index] = l.Name, l.Kind
	}
	for _, l := range links {
		l.Master, l.MasterKind, l.Parent, l.Pair = names[l.master], kinds[l.master], names[l.parent], names[l.pair]
		l.Wireless = l.Kind == "" && h.wireless(l.Name)
		o.Links = append(o.Links, l.Link)
	}
	slices.SortFunc(o.Links, func(a, b Link) int { return a.Index - b.Index })

	// A link created after the first dump has no name here. Its addresses, routes
	// and neighbours are left out; the next Observe sees them.
	addresses, err := dump(ctx, h, unix.RTM_GETADDR, unix.RTM_NEWADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC), parseAddress)
	if err != nil {
		return Observed{}, fmt.Errorf("cannot list addresses: %w", err)
	}
	for _, a := range addresses {
		if a.Link = names[a.index]; a.Link != "" {
			o.Addresses = append(o.Addresses, a.Address)
		}
	}
	routes, err := dump(ctx, h, unix.RTM_GETROUTE, unix.RTM_NEWROUTE, &nl.RtMsg{}, parseRoute)
	if err != nil {
		return Observed{}, fmt.Errorf("cannot list routes: %w", err)
	}
	for _, r := range routes {
		for _, index := range r.indexes {
			if r.Link = names[index]; r.Link != "" {
				o.Routes = append(o.Routes, r.Route)
			}
		}
	}
	neighbours, err := dump(ctx, h, unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, &neighbourMessage{}, parseNeighbour)
	if err != nil {
		return Observed{}, fmt.Errorf("cannot list neighbours: %w", err)
	}
	for _, n := range neighbours {
		if n.Link = names[n.index]; n.Link != "" && n.state == unix.NUD_PERMANENT {
			o.Neighbours = append(o.Neighbours, n.Neighbour)
		}
	}
	return o, nil
}

// wireless reports whether the link is wireless. It looks in sysfs, because
// netlink reports wireless devices only in events.
func (h *Host) wireless(link string) bool {
	_, err := os.Stat(filepath.Join(h.options.Sys, "class/net", link, "phy80211"))
	return err == nil
}

// dump reads all entries of a table. parse returns false for an entry to skip.
func dump[T any](ctx context.Context, h *Host, ask, answer uint16, header nl.NetlinkRequestData, parse func([]byte) (T, bool)) ([]T, error) {
	for try := 1; ; try++ {
		messages, err := h.request(ctx, ask, unix.NLM_F_DUMP, answer, header)
		switch {
		case err == nil:
			var all []T
			for _, m := range messages {
				if x, ok := parse(m); ok {
					all = append(all, x)
				}
			}
			return all, nil
		case !errors.Is(err, nl.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS):
			return nil, err
		case try == dumpTries:
			return nil, transient("the list changed during each of %d readings: %w", dumpTries, err)
		}
		timer := time.NewTimer(rand.N(dumpWait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
}

// link reads one link by its name.
func (h *Host) link(ctx context.Context, name string) (seenLink, error) {
	if name == "" || len(name) > maxName {
		return seenLink{}, fmt.Errorf("cannot find network device %q: %w", name, unix.ENODEV)
	}
	messages, err := h.request(ctx, unix.RTM_GETLINK, 0, unix.RTM_NEWLINK,
		nl.NewIfInfomsg(unix.AF_UNSPEC), nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	if err != nil {
		return seenLink{}, fmt.Errorf("cannot find network device %s: %w", name, err)
	}
	for _, m := range messages {
		if l, ok := parseLink(m); ok {
			return l, nil
		}
	}
	return seenLink{}, fmt.Errorf("cannot find network device %s: %w", name, unix.ENODEV)
}

const (
	localWait = 200 * time.Millisecond
	localPoll = time.Millisecond
)

// awaitLocal waits, for at most localWait, until the kernel accepts packets to
// an IPv6 address of the link. The kernel adds the local route some time after
// the address. Until the route exists, the address must also stay on its
// previous link.
func (h *Host) awaitLocal(ctx context.Context, link string, local netip.Addr) {
	l, err := h.link(ctx, link)
	if err != nil || !local.Is6() {
		return
	}
	for end := time.Now().Add(localWait); time.Now().Before(end); {
		found, err := dump(ctx, h, unix.RTM_GETROUTE, unix.RTM_NEWROUTE, &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET6}},
			func(m []byte) (struct{}, bool) {
				r, _ := parseRoute(m)
				return struct{}{}, r.Type == unix.RTN_LOCAL && r.Destination.Addr() == local && slices.Contains(r.indexes, l.Index)
			})
		if err != nil || len(found) > 0 {
			return
		}
		timer := time.NewTimer(localPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}
