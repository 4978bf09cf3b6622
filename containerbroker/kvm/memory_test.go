package kvm

import (
	"testing"

	libvirt "github.com/digitalocean/go-libvirt"
)

// A guest gives memory only if it has some to spare afterwards.
func TestSpareMemory(t *testing.T) {
	const actual, usable, unused = libvirt.DomainMemoryStatActualBalloon, libvirt.DomainMemoryStatUsable, libvirt.DomainMemoryStatUnused
	for what, c := range map[string]struct {
		stats map[libvirt.DomainMemoryStatTags]int64
		spare bool
	}{
		"enough":                 {map[libvirt.DomainMemoryStatTags]int64{actual: 1 << 20, usable: 576 << 10, unused: 1}, true},
		"a little too much used": {map[libvirt.DomainMemoryStatTags]int64{actual: 1 << 20, usable: 576<<10 - 1, unused: 1 << 20}, false},
		"all used":               {map[libvirt.DomainMemoryStatTags]int64{actual: 1 << 20, usable: 0, unused: 1 << 20}, false},
		"an old kernel":          {map[libvirt.DomainMemoryStatTags]int64{actual: 1 << 20, unused: 576 << 10}, true},
		"an old kernel, used":    {map[libvirt.DomainMemoryStatTags]int64{actual: 1 << 20, unused: 576<<10 - 1}, false},
		"no use reported":        {map[libvirt.DomainMemoryStatTags]int64{actual: 1 << 20}, false},
		"no statistics":          {nil, false},
	} {
		if has := hasSpare(c.stats, 512<<20); has != c.spare {
			t.Errorf("%s: %v", what, has)
		}
	}
}
