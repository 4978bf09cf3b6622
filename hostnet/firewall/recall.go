package firewall

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// Recall tells which of the networks the table was made for, by their owner,
// and how: of a network whose record is lost the table still knows what was
// declared. Owner, Bridge and Subnets are given; one whose rules are made neither
// for these subnets nor for none is left out.
func (f *Firewall) Recall(ctx context.Context, networks []Network) ([]Network, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, _, err := f.list(ctx)
	if err != nil {
		return nil, err
	}
	have := l.present(inet, f.name)
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
	return known, nil
}

// makings are all ways to make a network. A comment tells the rule, so that no
// two ways that differ in any rule have the same comments.
func makings(n Network) []Network {
	var all []Network
	for bits := range 16 {
		made := n
		made.Forward, made.NAT, made.Services, made.HostAccess = bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
		all = append(all, made)
		made.Subnets = nil // as over a NIC of the host
		all = append(all, made)
	}
	return all
}

// commentsOf are an owner's comments in each chain that has any.
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
