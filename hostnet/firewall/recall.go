package firewall

import (
	"maps"
	"slices"
	"strings"
)

// Recall returns the networks that the table has rules for, by owner, with the
// settings of those rules. The table thus preserves the settings of a network
// whose record is lost. The caller gives Owner, Bridge and Subnets; Recall
// omits a network if its rules fit neither these subnets nor none.
func (r Ruleset) Recall(networks []Network) []Network {
	have := r.l.present(inet, r.name)
	var known []Network
	for _, n := range networks {
		own := commentsOf(n.Owner, have)
		if len(own) == 0 {
			continue
		}
		for _, made := range makings(n) {
			wanted := map[string][]string{}
			for _, c := range table(Rules{Networks: []Network{made}}) {
				wanted[c.name] = c.comments
			}
			if maps.EqualFunc(own, commentsOf(n.Owner, wanted), slices.Equal) {
				known = append(known, made)
				break
			}
		}
	}
	return known
}

// makings returns all combinations of a network's settings. Comments contain a
// hash of the rule, so combinations with different rules have different
// comments.
func makings(n Network) []Network {
	var all []Network
	for bits := range 16 {
		made := n
		made.Forward, made.NAT, made.Services, made.HostAccess = bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
		all = append(all, made)
		made.Subnets = nil // e.g. for a bridge over a host NIC
		all = append(all, made)
	}
	return all
}

// commentsOf returns an owner's comments, by chain.
func commentsOf(owner string, chains map[string][]string) map[string][]string {
	own := map[string][]string{}
	for name, comments := range chains {
		for _, c := range comments {
			if strings.HasPrefix(c, commentPrefix+owner+"#") {
				own[name] = append(own[name], c)
			}
		}
	}
	return own
}
