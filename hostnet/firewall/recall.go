package firewall

import (
	"maps"
	"slices"
	"strings"
)

// Recall reads the settings of networks whose records are lost from the table's
// rules. Of each network, the caller gives Owner, Bridge and Subnets. Recall
// returns those networks that the table has rules for, with the settings of
// these rules. It omits a network whose rules fit neither its subnets nor an
// empty list of subnets.
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

// makings returns copies of the network, one for each combination of settings
// that its rules may have been made with. The comment of a rule in the firewall
// contains a hash of the rule, so it differs between combinations.
func makings(n Network) []Network {
	var all []Network
	for bits := range 16 {
		made := n
		made.Forward, made.NAT, made.Services, made.HostAccess = bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
		all = append(all, made)
		made.Subnets = nil // the rules of e.g. a bridge over a host NIC have no subnets
		all = append(all, made)
	}
	return all
}

// commentsOf returns the comments of an owner's rules, keyed by chain.
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
