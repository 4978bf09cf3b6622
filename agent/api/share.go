package api

import "sync"

// share names a group of callers with its own part of the API's limits, so that
// no group uses up another's: with subordinate uids a single reader can have
// many uids.
type share string

// The share of root; the others are the shares of the roles.
const shareRoot share = "root"

// share returns the share that the caller belongs to.
func (c caller) share() share {
	if c.UID == 0 {
		return shareRoot
	}
	return share(c.role)
}

// bound limits simultaneous uses: per uid, and of the whole share.
type bound struct{ perUID, all int }

// part holds the limits of a share.
type part struct {
	conns, streams, plans bound
	// rate and burst bound the requests of a uid, in requests per second; the
	// whole share has ten times that.
	rate, burst float64
	// yields: when a connection finds no room, the oldest idle connection of the
	// share is closed for it.
	yields bool
	// waits: a plan waits for room instead of being refused.
	waits bool
}

// parts holds the limits of the shares. Root has room for a hundred
// simultaneous commands; root and the workers' users have a rate that only a
// runaway loop reaches. There are two workers' users, for lxd and kvm.
var parts = map[share]part{
	shareRoot:           {conns: bound{160, 160}, streams: bound{160, 160}, plans: bound{2, 2}, rate: 1000, burst: 2000, waits: true},
	share(roleAdmin):    {conns: bound{64, 96}, streams: bound{16, 64}, plans: bound{1, 2}, rate: 20, burst: 40, waits: true},
	share(roleWorker):   {conns: bound{64, 128}, streams: bound{16, 32}, plans: bound{}, rate: 1000, burst: 2000},
	share(roleReader):   {conns: bound{32, 64}, streams: bound{16, 48}, plans: bound{1, 2}, rate: 20, burst: 40, yields: true},
	share(roleStranger): {conns: bound{16, 16}, rate: 20, burst: 40, yields: true},
}

// holder is a uid in a share.
type holder struct {
	share share
	uid   uint32
}

// counter counts things in use, per uid and per share.
type counter struct {
	mu    sync.Mutex
	of    func(part) bound
	uids  map[holder]int
	all   map[share]int
	freed chan struct{} // closed when a use ends
}

func newCounter(of func(part) bound) *counter {
	return &counter{of: of, uids: map[holder]int{}, all: map[share]int{}, freed: make(chan struct{})}
}

// take reserves a use. It returns false when a limit is reached; freed is
// closed when a use ends after that.
func (c *counter) take(s share, uid uint32) (taken bool, freed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.of(parts[s])
	if c.uids[holder{s, uid}] >= b.perUID || c.all[s] >= b.all {
		return false, c.freed
	}
	c.uids[holder{s, uid}]++
	c.all[s]++
	return true, nil
}

// full reports whether the uid's own limit is reached.
func (c *counter) full(s share, uid uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uids[holder{s, uid}] >= c.of(parts[s]).perUID
}

func (c *counter) give(s share, uid uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[s]--
	if c.uids[holder{s, uid}]--; c.uids[holder{s, uid}] == 0 {
		delete(c.uids, holder{s, uid})
	}
	close(c.freed)
	c.freed = make(chan struct{})
}
