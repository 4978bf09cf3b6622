package kvm

import (
	"slices"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/pause"
)

const (
	// spareMemory is the memory, in bytes, that a guest has left for new processes when
	// its balloon has taken memory.
	spareMemory = 64 << 20
	// statsLimit bounds the wait for statistics. A guest answers within milliseconds.
	statsLimit = 5 * time.Second
)

// refuseMemory returns the changes without that of the memory, and a transient error, if
// the running guest shows no memory to spare. Its balloon would take the memory all the
// same, and the guest's kernel then ends processes and at last itself.
func (u *updating) refuseMemory(changes []containerbroker.Change) (left []containerbroker.Change, refused error) {
	isMemory := func(c containerbroker.Change) bool { return c.Field == containerbroker.FieldMemory }
	if !u.running || u.want.Memory >= memoryOf(&u.live.domain) || !slices.ContainsFunc(changes, isMemory) {
		return changes, nil
	}
	stats := u.memoryStats()
	if hasSpare(stats, u.want.Memory) {
		return changes, nil
	}
	refused = fault.New(fault.Transient, "the guest uses more memory than that: let it use less, or stop the machine and start it again")
	if stats == nil {
		refused = fault.New(fault.Transient, "the guest does not report how much memory it uses: stop the machine and start it again")
	}
	return slices.DeleteFunc(slices.Clone(changes), isMemory), refused
}

// memoryStats returns new statistics of the guest's balloon, in KiB. It returns nil if
// the guest reports none, e.g. because it is paused or has no driver for its balloon.
func (u *updating) memoryStats() map[libvirt.DomainMemoryStatTags]int64 {
	had := int32(0)
	if b := u.live.domain.Devices.MemBalloon; b != nil && b.Stats != nil {
		had = int32(b.Stats.Period)
	}
	every := func(seconds int32) error {
		return u.c.Call("ask for the guest's memory in use", func(l *libvirt.Libvirt) error {
			return l.DomainSetMemoryStatsPeriod(u.dom, seconds, libvirt.DomainMemLive)
		})
	}
	began := time.Now()
	if every(1) != nil {
		return nil
	}
	defer func() { _ = every(had) }()
	for time.Since(began) < statsLimit {
		list, err := value(u.c, "read the guest's memory in use", func(l *libvirt.Libvirt) ([]libvirt.DomainMemoryStat, error) {
			return l.DomainMemoryStats(u.dom, uint32(libvirt.DomainMemoryStatNr), 0)
		})
		stats := map[libvirt.DomainMemoryStatTags]int64{}
		for _, s := range list {
			stats[libvirt.DomainMemoryStatTags(s.Tag)] = int64(s.Val)
		}
		if err == nil && stats[libvirt.DomainMemoryStatLastUpdate] >= began.Unix() {
			return stats
		}
		if err != nil || pause.For(u.c.ctx, lookEach) != nil {
			return nil
		}
	}
	return nil
}

// hasSpare reports whether a guest with these statistics has spare memory left when its
// balloon has reduced its memory to want bytes. Kernels before Linux 4.6 report the free
// memory alone, without the caches that they would free.
func hasSpare(stats map[libvirt.DomainMemoryStatTags]int64, want int64) bool {
	available, known := stats[libvirt.DomainMemoryStatUsable]
	if !known {
		available = stats[libvirt.DomainMemoryStatUnused]
	}
	return len(stats) > 0 && (available-stats[libvirt.DomainMemoryStatActualBalloon])<<10+want >= spareMemory
}
