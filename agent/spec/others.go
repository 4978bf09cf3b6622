package spec

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Others is the rest of the documents that a document is checked against. None
// of the maps holds an object that the document itself declares.
type Others struct {
	// Declared holds the objects that the document may refer to.
	Declared Declaration
	// Claimed holds the objects whose bridges, addresses, ports and storage the
	// document must leave alone.
	Claimed Declaration
	// Where tells where an object (KIND/NAME) stands, e.g. "lan.yaml:4".
	Where map[string]string
	// Open accepts references to objects that nothing declares.
	Open bool
}

// own says whether a path is part of the document that is checked.
func (c *checker) own(path string) bool { return c.places[path] != nil }

// where tells where a path stands, of the document itself or of another.
func (c *checker) where(path string) string {
	if c.own(path) {
		return fmt.Sprintf("line %d", c.line(path))
	}
	if at := c.others.Where[idOf(path)]; at != "" {
		return at
	}
	return "in another document"
}

// idOf is the object that a path is part of as KIND/NAME: network/lan.
func idOf(path string) string {
	kind, rest, _ := strings.Cut(path, ".")
	name, _, _ := strings.Cut(rest, ".")
	return strings.TrimSuffix(kind, "s") + "/" + name
}

// declaredNames are the names of both maps, sorted.
func declaredNames[T any](own, others map[string]T) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(own)), maps.Keys(others))
	slices.Sort(names)
	return slices.Compact(names)
}

func (c *checker) network(name string) Network {
	if n, own := c.decl.Networks[name]; own {
		return n
	}
	return c.others.Declared.Networks[name]
}

func (c *checker) filesystem(name string) Filesystem {
	if f, own := c.decl.Filesystems[name]; own {
		return f
	}
	return c.others.Declared.Filesystems[name]
}

// claimedLinks are the bridges, the interfaces under them and the subnets that
// other documents have, by path.
func (c *checker) claimedLinks() (bridges, members map[string]string, subnets []placed[netip.Prefix]) {
	bridges, members = map[string]string{}, map[string]string{}
	for name, n := range c.others.Claimed.Networks {
		path := "networks." + name
		bridges[n.Bridge] = path + ".bridge"
		for i, member := range n.Interfaces {
			members[member] = fmt.Sprintf("%s.interfaces[%d]", path, i)
		}
		for i, s := range n.Addresses {
			if p, err := netip.ParsePrefix(s); err == nil {
				subnets = append(subnets, placed[netip.Prefix]{fmt.Sprintf("%s.addresses[%d]", path, i), p})
			}
		}
	}
	return bridges, members, subnets
}

// claimAddresses takes the addresses that machines of other documents have.
func (c *checker) claimAddresses(t *networkTable) {
	for name, m := range c.others.Claimed.Machines {
		for nic, n := range m.Networks {
			if p, err := netip.ParsePrefix(n.Address); err == nil {
				t.taken[p.Addr()] = "machines." + name + ".networks." + nic
			}
		}
	}
}

// claimedPorts are the ports of the host that machines of other documents
// publish, by path.
func (c *checker) claimedPorts() map[string]string {
	ports := map[string]string{}
	for name, m := range c.others.Claimed.Machines {
		for i, p := range m.Publish {
			ports[p.Protocol+"/"+strconv.Itoa(p.HostPort)] = fmt.Sprintf("machines.%s.publish[%d]", name, i)
		}
	}
	return ports
}

// claimedVolumes are the volumes that filesystems of other documents stand on.
func (c *checker) claimedVolumes() map[string]string {
	used := map[string]string{}
	for name, f := range c.others.Claimed.Filesystems {
		if f.Volume != "" {
			used[f.Volume] = "filesystems." + name + ".volume"
		}
	}
	return used
}

// claimedStorage is the storage that machines of other documents use.
func (c *checker) claimedStorage() storageUsers {
	users := storageUsers{writers: map[string]string{}, readers: map[string]string{}, filesystems: map[string]string{}}
	for name, m := range c.others.Claimed.Machines {
		for i, a := range m.Storage {
			path := fmt.Sprintf("machines.%s.storage[%d]", name, i)
			switch {
			case a.Filesystem != "":
				users.filesystems[a.Filesystem] = path
			case a.ReadOnly:
				users.readers[a.Volume] = path
			case a.Volume != "":
				users.writers[a.Volume] = path
			}
		}
	}
	return users
}
