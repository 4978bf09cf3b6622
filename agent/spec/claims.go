package spec

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Claims are the things that the objects of documents occupy and that no other
// object may use: bridges, their interfaces, subnets, addresses, ports of the
// host, storage and former names of machines. A lookup does not scan all claims. The
// zero value is empty.
type Claims struct {
	bridges, members, ports       claimants[string]
	volumes                       claimants[string] // volumes under filesystems
	writers, readers, filesystems claimants[string] // storage of machines
	renamed                       claimants[string]
	addresses                     claimants[netip.Addr]
	// subnets are sorted and do not overlap, because a wider subnet replaces the
	// subnets inside it.
	subnets []placed[netip.Prefix]
}

// claimants maps each claimed thing to the paths that claim it.
type claimants[K comparable] map[K][]string

func claim[K comparable](all *claimants[K], thing K, path string) {
	if *all == nil {
		*all = claimants[K]{}
	}
	(*all)[thing] = append((*all)[thing], path)
}

// claimantOf returns the path by which another document claims the thing, or ""
// if no other document claims it.
func claimantOf[K comparable](c *checker, all claimants[K], thing K) string {
	for _, path := range all[thing] {
		if !c.ownObject(path) {
			return path
		}
	}
	return ""
}

// ownObject reports whether the path belongs to an object that the checked
// document declares.
func (c *checker) ownObject(path string) bool {
	end := strings.IndexByte(path, '.') + 1
	if more := strings.IndexByte(path[end:], '.'); more >= 0 {
		return c.own(path[:end+more])
	}
	return c.own(path)
}

// Add adds the claims of a document's objects.
func (s *Claims) Add(d Declaration) {
	for name, n := range d.Networks {
		path := "networks." + name
		claim(&s.bridges, n.Bridge, path+".bridge")
		for i, member := range n.Interfaces {
			claim(&s.members, member, fmt.Sprintf("%s.interfaces[%d]", path, i))
		}
		for i, text := range n.Addresses {
			if p, err := netip.ParsePrefix(text); err == nil {
				claim(&s.addresses, p.Addr(), addressPath(name, i))
				s.addSubnet(placed[netip.Prefix]{addressPath(name, i), p})
			}
		}
	}
	for name, f := range d.Filesystems {
		if f.Volume != "" {
			claim(&s.volumes, f.Volume, "filesystems."+name+".volume")
		}
	}
	for name, m := range d.Machines {
		s.addMachine("machines."+name, m)
	}
}

func (s *Claims) addMachine(path string, m Machine) {
	if m.RenamedFrom != "" {
		claim(&s.renamed, m.RenamedFrom, path+".renamed-from")
	}
	for nic, n := range m.Networks {
		if p, err := netip.ParsePrefix(n.Address); err == nil {
			claim(&s.addresses, p.Addr(), path+".networks."+nic)
		}
	}
	for i, p := range m.Publish {
		claim(&s.ports, p.Protocol+"/"+strconv.Itoa(p.HostPort), fmt.Sprintf("%s.publish[%d]", path, i))
	}
	for i, a := range m.Storage {
		here := fmt.Sprintf("%s.storage[%d]", path, i)
		switch {
		case a.Filesystem != "":
			claim(&s.filesystems, a.Filesystem, here)
		case a.ReadOnly:
			claim(&s.readers, a.Volume, here)
		case a.Volume != "":
			claim(&s.writers, a.Volume, here)
		}
	}
}

// around returns the range of the subnets that share addresses with p, which
// are subnets[from:to].
func (s *Claims) around(p netip.Prefix) (from, to int) {
	from, _ = slices.BinarySearchFunc(s.subnets, p.Masked().Addr(), func(at placed[netip.Prefix], first netip.Addr) int {
		return at.value.Masked().Addr().Compare(first)
	})
	if from > 0 && s.subnets[from-1].value.Overlaps(p) {
		from--
	}
	for to = from; to < len(s.subnets) && s.subnets[to].value.Overlaps(p); to++ {
	}
	return from, to
}

func (s *Claims) addSubnet(p placed[netip.Prefix]) {
	from, to := s.around(p.value)
	if to == from || s.subnets[from].value.Bits() > p.value.Bits() {
		s.subnets = slices.Replace(s.subnets, from, to, p)
	}
}

// overlapping returns a subnet of another document that shares addresses with
// p, or false if there is none.
func (s *Claims) overlapping(c *checker, p netip.Prefix) (placed[netip.Prefix], bool) {
	from, to := s.around(p)
	for _, other := range s.subnets[from:to] {
		if !c.ownObject(other.path) {
			return other, true
		}
	}
	return placed[netip.Prefix]{}, false
}
