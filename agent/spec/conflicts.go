package spec

import (
	"fmt"
	"maps"
	"slices"
)

// Conflict is one thing that two declarations both claim.
type Conflict struct {
	// Object is KIND/NAME, or what else is claimed: "tcp port 80", "bridge br0".
	Object string
	// Declarations are the two that claim it, sorted.
	Declarations [2]string
	Message      string
}

// Conflicts finds what several declarations claim at once: objects of the same
// kind and name (and so instances of the same name), bridges, interfaces under
// them, and ports of the host. The key of decls is the declaration's name. Sorted by declarations,
// then object; the first claimer by name is held against every later one.
func Conflicts(decls map[string]Declaration) []Conflict {
	var conflicts []Conflict
	claims := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(decls)) {
		for _, object := range decls[name].claims() {
			first, taken := claims[object]
			if !taken {
				claims[object] = name
				continue
			}
			if first == name {
				continue // Parse tells of clashes within one declaration
			}
			conflicts = append(conflicts, Conflict{
				Object: object, Declarations: [2]string{first, name},
				Message: fmt.Sprintf("%s is claimed by the declarations %q and %q; remove it from one of them", object, first, name),
			})
		}
	}
	return conflicts
}

// claims lists what no other declaration may have too, sorted.
func (d Declaration) claims() []string {
	claims := d.Objects()
	for _, n := range d.Networks {
		claims = append(claims, "bridge "+n.Bridge)
		for _, member := range n.Interfaces {
			claims = append(claims, "interface "+member)
		}
	}
	for _, m := range d.Machines {
		for _, p := range m.Publish {
			claims = append(claims, fmt.Sprintf("%s port %d of the host", p.Protocol, p.HostPort))
		}
	}
	slices.Sort(claims)
	return claims
}
