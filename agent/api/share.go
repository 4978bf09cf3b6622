package api

import "sync"

// share names the callers who have a part of the API's bounds to themselves, so
// that nobody takes another's: with subordinate uids a reader is many.
type share string

// The shares: root's, and those of the roles.
const shareRoot share = "root"

// share is whose part a caller has.
func (c caller) share() share {
	if c.UID == 0 {
		return shareRoot
	}
	return share(c.role)
}

// bound is a number of things at once: of one uid, and of a share in all.
type bound struct{ perUID, all int }

// part is what a share has.
type part struct {
	conns, streams, plans bound
	// rate and burst bound the requests of a uid, in requests a second; the
	// share has ten times that.
	rate, burst float64
	// yields: where there is no room for a connection, the oldest idle one of
	// the share is closed for it.
	yields bool
	// waits: a plan waits for room, and is not refused.
	waits bool
}

// parts are the bounds. Root has what a hundred commands at once need; root and
// the workers' users have a rate that only a runaway loop reaches.
var parts = map[share]part{
	shareRoot:           {conns: bound{160, 160}, streams: bound{160, 160}, plans: bound{2, 2}, rate: 1000, burst: 2000, waits: true},
	share(roleAdmin):    {conns: bound{64, 96}, streams: bound{16, 64}, plans: bound{1, 2}, rate: 20, burst: 40, waits: true},
	share(roleWorker):   {conns: bound{32, 64}, streams: bound{16, 32}, plans: bound{}, rate: 1000, burst: 2000},
	share(roleReader):   {conns: bound{32, 64}, streams: bound{16, 48}, plans: bound{1, 2}, rate: 20, burst: 40, yields: true},
	share(roleStranger): {conns: bound{16, 16}, rate: 20, burst: 40, yields: true},
}

// holder is a uid in one of its roles.
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
	freed chan struct{} // closed when a thing was given back
}

func newCounter(of func(part) bound) *counter {
	return &counter{of: of, uids: map[holder]int{}, all: map[share]int{}, freed: make(chan struct{})}
}

// take returns false when a bound is reached; freed is closed when a thing was
// given back after that.
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

// full says whether it is the uid's own bound that is reached.
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
