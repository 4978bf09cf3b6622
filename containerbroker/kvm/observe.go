package kvm

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// definition is the parsed definition of a domain.
type definition struct {
	domain libvirtxml.Domain
	note   *note
	// live is the running guest, as read from libvirt (see running.go). It is
	// set only for hostler's instances that were listed as running.
	live *life
	// slots is the result of freeSlots() for the definition.
	slots int
	// seedText is the result of seedTextToCompare().
	seedText string
}

// raw holds the values that Diff needs beyond containerbroker.Instance. key is
// the key for the digest of user-data.
type raw struct {
	key      []byte
	seedText string // see definition
}

// The flags of calls for which the library has no names (libvirt-domain.h).
const (
	statsState        = 1 << 0
	listAutostart     = 1 << 10
	xmlInactive       = 1 << 1
	xmlInactiveSecure = 1<<1 | 1<<0
)

// List implements containerbroker.Broker with two calls, and another call for
// each domain whose definition changed since the last listing. The calls use
// the connection that all listings share. When ctx ends, List returns but its
// calls go on to their own limits, because cancelling a call would close the
// connection for the other listings.
func (d *Driver) List(ctx context.Context, detail bool) ([]containerbroker.Instance, error) {
	var all []containerbroker.Instance
	listed := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				listed <- fault.New(fault.Transient, "libvirt gave an unreadable answer: %v", p)
			}
		}()
		found, err := d.list(context.WithoutCancel(ctx), detail)
		all = found
		listed <- err
	}()
	var err error
	select {
	case err = <-listed:
	case <-ctx.Done():
		err = fmt.Errorf("libvirt has not answered yet: %w", ctx.Err())
	}
	if containerbroker.Unanswered(err) != "" {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list libvirt's domains: %w", err)
	}
	return all, nil
}

func (d *Driver) list(ctx context.Context, detail bool) ([]containerbroker.Instance, error) {
	s, err := d.session(ctx)
	if err != nil {
		return nil, err
	}
	stats, err := value(s.conn, "read the domains' states", func(l *libvirt.Libvirt) ([]libvirt.DomainStatsRecord, error) {
		return l.ConnectGetAllDomainStats(nil, statsState, 0)
	})
	if err != nil {
		return nil, err
	}
	starts, err := value(s.conn, "read which domains start with the host", func(l *libvirt.Libvirt) ([]libvirt.Domain, error) {
		found, _, err := l.ConnectListAllDomains(1, listAutostart)
		return found, err
	})
	if err != nil {
		return nil, err
	}
	autostart := map[libvirt.UUID]bool{}
	for _, dom := range starts {
		autostart[dom.UUID] = true
	}
	there := map[libvirt.UUID]bool{}
	all := make([]containerbroker.Instance, 0, len(stats))
	var guests []listedDomain
	for _, one := range stats {
		state, reason, ok := stateIn(one.Params)
		if !ok || one.Dom.Name == "" || there[one.Dom.UUID] {
			return nil, fault.New(fault.Transient, "an entry has no name or no state")
		}
		there[one.Dom.UUID] = true
		status := statusOf(state, reason)
		def, err := d.definition(s, one.Dom, running(status))
		if fault.Is(err, fault.NotFound) {
			continue // the domain was removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		i, err := d.instanceOf(ctx, s.conn, def, one.Dom.Name, status)
		if err != nil {
			return nil, err
		}
		if file, err := os.Stat(d.pidFile(one.Dom)); err == nil && running(status) {
			i.Started = file.ModTime()
		}
		i.Standstill = standstill(state, reason, one.Dom.Name)
		i.Autostart = autostart[one.Dom.UUID]
		if i.Stored.Autostart = i.Autostart; i.Running != nil {
			i.Running.Autostart = i.Autostart
		}
		if detail && running(i.Status) {
			i.PID = d.pidOf(one.Dom)
			guests = append(guests, listedDomain{dom: one.Dom, def: def, at: len(all)})
		}
		all = append(all, i)
	}
	s.forgetAllBut(there)
	addresses := d.addresses(guests,
		func(dom libvirt.Domain) ([]string, bool) { return d.learn(s.conn, dom, listAnswer) },
		func(g listedDomain) []string { return d.seen(s.conn, g.dom, g.def) })
	for n, g := range guests {
		all[g.at].Addresses = addresses[n]
	}
	slices.SortFunc(all, func(a, b containerbroker.Instance) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// stateIn finds a domain's state and the reason for that state among the
// domain's statistics.
func stateIn(params []libvirt.TypedParam) (state, reason int32, ok bool) {
	for _, p := range params {
		n, isInt := p.Value.I.(int32)
		switch p.Field {
		case "state.state":
			state, ok = n, isInt
		case "state.reason":
			reason = n
		}
	}
	return state, reason, ok
}

// definition returns a domain's definition, from the cache if nothing changed.
// runs says whether the guest runs.
func (d *Driver) definition(s *session, dom libvirt.Domain, runs bool) (definition, error) {
	known, ok, mark := s.recall(dom.UUID)
	written := time.Time{}
	if runs {
		written = d.written(dom)
	}
	if ok && (!runs || known.note == nil || known.live.is(dom, written)) {
		return known, nil
	}
	known, err := readDefinition(s.conn, dom, xmlInactive)
	if err == nil && runs && known.note != nil {
		known.live, err = readLife(s.conn, dom, written)
	}
	if err != nil {
		return known, err
	}
	var unread error
	if known.seedText, unread = seedTextToCompare(s.conn, known); unread == nil {
		s.remember(dom.UUID, known, mark)
	}
	return known, nil
}

func readDefinition(c *conn, dom libvirt.Domain, flags libvirt.DomainXMLFlags) (definition, error) {
	text, err := value(c, "read the definition of "+clean(dom.Name, 64), func(l *libvirt.Libvirt) (string, error) { return l.DomainGetXMLDesc(dom, flags) })
	if err != nil {
		return definition{}, err
	}
	def := definition{slots: freeSlots(text)}
	if err := def.domain.Unmarshal(text); err != nil {
		return definition{}, fault.New(fault.Transient, "cannot read the definition of %s: %v", clean(dom.Name, 64), err)
	}
	if def.domain.Metadata != nil {
		def.note = noteFor(def.domain.UUID, def.domain.Metadata.XML)
	}
	if def.domain.Devices == nil {
		def.domain.Devices = &libvirtxml.DomainDeviceList{}
	}
	return def, nil
}

// instanceOf reads a domain. It trusts no value of the definition. An
// unreadable value becomes the zero value.
func (d *Driver) instanceOf(ctx context.Context, c *conn, def definition, name string, status containerbroker.Status) (containerbroker.Instance, error) {
	i := containerbroker.Instance{Name: name, Status: status}
	s := &i.Stored
	for _, p := range properties {
		p.read(&def.domain, &s.Properties)
	}
	var at map[string]libvirtxml.DomainInterface
	s.NICs, at = def.ownNICs(def.domain.Devices.Interfaces)
	i.Ports = portsOf(at)
	for _, n := range def.domain.Devices.Interfaces {
		if n.MAC != nil {
			i.MACs = append(i.MACs, strings.ToLower(n.MAC.Address))
		}
	}
	s.Disks, _ = foundDisks(def.domain.Devices.Disks)
	known := raw{seedText: def.seedText}
	if n := def.note; n != nil {
		i.Stamp = n.stamp()
		key, err := d.sealKey(ctx, c, n.Namespace, false)
		if err != nil {
			return i, err
		}
		if key != nil {
			known.key, i.Stamp.Record = key, unseal(key, n.Record)
		}
		i.ImageID, i.Created = n.Image, time.Unix(0, n.Created)
		s.RootDisk, s.Pool, s.UserData, s.NetworkConfig = n.RootDisk, n.Pool, n.UserData, n.NetworkConfig
		s.Addresses, s.Sizes = n.Addresses, n.Sizes
		s.ImageID, s.Record = i.ImageID, i.Stamp.Record
		if n.Making {
			i.Status = d.halfMade(name)
		}
	}
	i.Properties, i.Raw = s.Properties, known
	_, places := cpusOf(def.domain.VCPU)
	i.Room = &containerbroker.Room{CPUs: places, Devices: containerbroker.Unlimited}
	if running(status) && def.live != nil && def.live.domain != nil {
		i.Running, i.Room = def.live.settings(def, *s)
	}
	return i, nil
}

// halfMade returns the status of an instance whose creation has not finished,
// depending on whether this process is creating it.
func (d *Driver) halfMade(name string) containerbroker.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.making[name] > 0 {
		return containerbroker.StatusBusy
	}
	return containerbroker.StatusHalfMade
}

// statusOf translates libvirt's states. No state hides a domain from the
// listing (Z3).
func statusOf(state, reason int32) containerbroker.Status {
	switch libvirt.DomainState(state) {
	case libvirt.DomainRunning, libvirt.DomainBlocked:
		return containerbroker.StatusRunning
	case libvirt.DomainPaused:
		if libvirt.DomainPausedReason(reason) == libvirt.DomainPausedStartingUp {
			return containerbroker.StatusBusy
		}
		return containerbroker.StatusFrozen
	case libvirt.DomainPmsuspended:
		return containerbroker.StatusFrozen
	case libvirt.DomainShutdown:
		return containerbroker.StatusBusy
	case libvirt.DomainShutoff, libvirt.DomainCrashed:
		return containerbroker.StatusStopped
	}
	return containerbroker.StatusUnknown
}

// standstill explains why a guest is suspended or paused, and how to continue
// it. It returns "" for a guest that runs or that an operator paused.
func standstill(state, reason int32, name string) string {
	again := "`hostler start " + clean(name, 64) + "` resumes it"
	if suspended(state) {
		return "suspended to RAM by its guest system; " + again
	}
	if libvirt.DomainState(state) != libvirt.DomainPaused {
		return ""
	}
	switch libvirt.DomainPausedReason(reason) {
	case libvirt.DomainPausedIoerror:
		return "paused by libvirt after an I/O error; is the pool or a volume full? After freeing space, " + again
	case libvirt.DomainPausedWatchdog:
		return "paused by its watchdog; " + again
	case libvirt.DomainPausedCrashed:
		return "paused by libvirt, since its kernel crashed; stop it and start it again"
	}
	return ""
}

// suspended reports whether the guest is suspended to RAM. A suspended guest is
// continued by a wake-up, a paused guest by a resume.
func suspended(state int32) bool {
	return libvirt.DomainState(state) == libvirt.DomainPmsuspended
}

func running(s containerbroker.Status) bool {
	return s == containerbroker.StatusRunning || s == containerbroker.StatusFrozen
}

// wholeMiB returns the memory, in bytes, that a guest really gets, because
// libvirt rounds memory up to whole MiB.
func wholeMiB(bytes int64) int64 { return (bytes + 1<<20 - 1) &^ (1<<20 - 1) }

// bytesOf reads a size with libvirt's unit. It returns 0 for an unknown unit or
// an impossible size.
func bytesOf(n uint, unit string) int64 {
	units := map[string]int64{
		"b": 1, "bytes": 1, "": 1 << 10, "k": 1 << 10, "KiB": 1 << 10, "M": 1 << 20, "MiB": 1 << 20, "G": 1 << 30, "GiB": 1 << 30,
		"T": 1 << 40, "TiB": 1 << 40, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	}
	size := units[unit]
	if size == 0 || uint64(n) > uint64((1<<62)/size) {
		return 0
	}
	return int64(n) * size
}
