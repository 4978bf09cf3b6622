package api

import "sync"

// share is the name of a group of callers. Each share has separate limits, so
// that no group uses up the places of another. A limit per uid would not
// suffice, because a reader with subordinate uids has many uids.
type share string

// shareRoot is the share of root. The names of the other shares are those of
// the roles.
const shareRoot share = "root"

// share returns the share to which the caller belongs.
func (c caller) share() share {
	if c.UID == 0 {
		return shareRoot
	}
	return share(c.role)
}

// bound limits the number of simultaneous uses per uid and of the whole share.
type bound struct{ perUID, all int }

// part holds the limits of a share.
type part struct {
	conns, streams, plans bound
	// rate bounds the requests of a uid per second, burst its requests at once.
	// The whole share has shareRates times these limits.
	rate, burst float64
	// yields is true if the server closes the longest idle connection of the
	// share to make room for a new one.
	yields bool
	// waits is true if a plan waits for a free place instead of being refused.
	waits bool
}

// parts holds the limits of the shares. A hundred simultaneous commands of root
// fit. Only a runaway loop reaches the rate of root and of the workers' users.
// The limits of workers are for the three of them at full use: lxd, incus and
// kvm.
var parts = map[share]part{
	shareRoot:           {conns: bound{160, 160}, streams: bound{160, 160}, plans: bound{2, 2}, rate: 1000, burst: 2000, waits: true},
	share(roleAdmin):    {conns: bound{64, 96}, streams: bound{16, 64}, plans: bound{1, 2}, rate: 20, burst: 40, waits: true},
	share(roleWorker):   {conns: bound{64, 192}, streams: bound{16, 48}, plans: bound{}, rate: 1000, burst: 2000},
	share(roleReader):   {conns: bound{32, 64}, streams: bound{16, 48}, plans: bound{1, 2}, rate: 20, burst: 40, yields: true},
	share(roleStranger): {conns: bound{16, 16}, rate: 20, burst: 40, yields: true},
}

// holder is a uid in a share.
type holder struct {
	share share
	uid   uint32
}

// counter counts the connections, streams or plans in use, per uid and per
// share.
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

// take reserves a place. If a limit is reached, it returns false and a channel
// that is closed when the next use ends.
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

// full reports whether the limit per uid is reached.
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
