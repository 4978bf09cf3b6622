package kvm

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/internal/kvm/rpc"
)

// lesson holds the addresses that a guest's agent reported. at is the time of
// the report. life is libvirt's number of the guest's life, i.e. of the time
// from its start to its end.
type lesson struct {
	life      int32
	addresses []string
	at        time.Time
	// silent is true if the agent was asked at the time at and did not answer.
	silent bool
}

const (
	// askAgain is the age from which on an agent's answer counts as old. After
	// a silent agent was asked, it is not asked again for leaveAlone.
	askAgain   = 10 * time.Minute
	leaveAlone = 5 * time.Minute
	// listAnswer is how long an agent may take to report its addresses while a
	// listing waits. askedAtOnce is the number of agents asked at the same
	// time. It is below five, the number of calls of one connection that
	// libvirt serves at once, because events use the connection, too.
	listAnswer  = 3 * time.Second
	askedAtOnce = 3
)

func (l lesson) fresh(dom libvirt.Domain) bool {
	age := time.Since(l.at)
	return l.life == dom.ID && (l.silent && age < leaveAlone || !l.silent && age < askAgain)
}

// listedDomain is a running guest and its position in a listing.
type listedDomain struct {
	dom libvirt.Domain
	def definition
	at  int
}

// addresses returns the addresses of each guest in guests. They come from the
// agent's last answer, or from a new answer if the last is old. If the agent
// has not answered, they are the addresses seen from the host. A guest controls
// its agent, which may therefore hang, so a listing spends at most askWithin on
// all agents together.
func (d *Driver) addresses(guests []listedDomain, learn func(libvirt.Domain) (addresses []string, silent bool), seen func(listedDomain) []string) [][]string {
	deadline, late := time.NewTimer(d.askWithin), make(chan struct{})
	defer deadline.Stop()
	defer close(late)
	var asked sync.WaitGroup
	for _, g := range guests {
		if _, fresh := d.lessonOf(g.dom); fresh {
			continue
		}
		asked.Go(func() {
			select {
			case d.asking <- struct{}{}:
				defer func() { <-d.asking }()
			case <-late: // the next listing asks this agent
				return
			}
			d.consult(g.dom, learn)
		})
	}
	answered := make(chan struct{})
	go func() {
		asked.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-deadline.C:
	}
	all := make([][]string, len(guests))
	for i, g := range guests {
		known, fresh := d.lessonOf(g.dom)
		if fresh && !known.silent {
			all[i] = known.addresses
		} else {
			all[i] = seen(g)
		}
	}
	return all
}

func (d *Driver) lessonOf(dom libvirt.Domain) (known lesson, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known = d.learned[dom.Name]
	return known, known.fresh(dom)
}

// consult asks a guest's agent for its addresses, unless another listing is
// asking it or has just asked it.
func (d *Driver) consult(dom libvirt.Domain, learn func(libvirt.Domain) ([]string, bool)) {
	mark := lesson{life: dom.ID, at: time.Now(), silent: true}
	d.mu.Lock()
	if d.learned[dom.Name].fresh(dom) {
		d.mu.Unlock()
		return
	}
	d.learned[dom.Name] = mark
	d.mu.Unlock()
	if addresses, silent := learn(dom); len(addresses) > 0 || silent {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.learned[dom.Name]; now.silent && now.at.Equal(mark.at) {
		delete(d.learned, dom.Name)
	}
}

// learn asks the guest's agent, if there is one, for the guest's addresses and
// stores the answer. silent is true if the agent did not answer.
func (d *Driver) learn(c *conn, dom libvirt.Domain, within time.Duration) (addresses []string, silent bool) {
	live, err := readDefinition(c, dom, 0)
	if err != nil || !agentConnected(live) {
		return nil, false
	}
	return d.askAddresses(c, dom, within)
}

// askAddresses is like learn(), for a guest whose agent is there.
func (d *Driver) askAddresses(c *conn, dom libvirt.Domain, within time.Duration) (addresses []string, silent bool) {
	var interfaces []struct {
		Name      string `json:"name"`
		Addresses []struct {
			Address string `json:"ip-address"`
		} `json:"ip-addresses"`
	}
	if err := askWithin(within, c, dom, "guest-network-get-interfaces", nil, &interfaces); err != nil {
		return nil, !errors.Is(err, rpc.ErrLost)
	}
	var found []netip.Addr
	for _, i := range interfaces {
		for _, a := range i.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && global(ip) {
				found = append(found, ip.Unmap())
			}
		}
	}
	addresses = sorted(found)
	if len(addresses) > 0 {
		d.mu.Lock()
		d.learned[dom.Name] = lesson{life: dom.ID, addresses: addresses, at: time.Now()}
		d.mu.Unlock()
	}
	return addresses, false
}
