package firewall

import (
	"encoding/json"
	"fmt"
	"slices"
)

// listing is the output of nft -j, reduced to the fields in use.
type listing struct {
	Objects []object `json:"nftables"`
}

type object struct {
	Table *nftTable `json:"table"`
	Chain *nftChain `json:"chain"`
	Rule  *nftRule  `json:"rule"`
	Set   *nftNamed `json:"set"`
	Map   *nftNamed `json:"map"`
}

type nftNamed struct {
	Family string `json:"family"`
	Table  string `json:"table"`
	Name   string `json:"name"`
}

type nftTable struct {
	Family string `json:"family"`
	Name   string `json:"name"`
}

type nftChain struct {
	Family string `json:"family"`
	Table  string `json:"table"`
	Name   string `json:"name"`
	Hook   string `json:"hook"`
	Policy string `json:"policy"`
}

type nftRule struct {
	Family  string            `json:"family"`
	Table   string            `json:"table"`
	Chain   string            `json:"chain"`
	Comment string            `json:"comment"`
	Expr    []json.RawMessage `json:"expr"`
}

func parse(data []byte) (listing, error) {
	var l listing
	if err := json.Unmarshal(data, &l); err != nil {
		return listing{}, fmt.Errorf("cannot read what nft prints: %w", err)
	}
	return l, nil
}

// present returns the comments of a table's rules, keyed by chain. It includes
// chains without rules.
func (l listing) present(family, table string) map[string][]string {
	chains := map[string][]string{}
	for _, o := range l.Objects {
		switch {
		case o.Chain != nil && o.Chain.Family == family && o.Chain.Table == table:
			if chains[o.Chain.Name] == nil {
				chains[o.Chain.Name] = []string{}
			}
		case o.Rule != nil && o.Rule.Family == family && o.Rule.Table == table:
			chains[o.Rule.Chain] = append(chains[o.Rule.Chain], o.Rule.Comment)
		}
	}
	return chains
}

// matches reports whether our tables hold exactly the wanted chains and rules.
func (l listing) matches(name string, wanted []chain) bool {
	have := map[string]map[string][]string{inet: l.present(inet, name), bridge: l.present(bridge, name)}
	if len(have[inet])+len(have[bridge]) != len(wanted) {
		return false
	}
	for _, c := range wanted {
		comments, ok := have[c.family][c.name]
		if !ok || !slices.Equal(comments, c.comments) {
			return false
		}
	}
	return true
}

// rulesOf returns the rules of our tables in the kernel's form. It leaves out
// the handles, which change at each load, and does not depend on the order of
// the tables.
func (l listing) rulesOf(table string) string {
	var all []json.RawMessage
	for _, family := range []string{inet, bridge} {
		for _, o := range l.Objects {
			if o.Rule != nil && o.Rule.Family == family && o.Rule.Table == table {
				all = append(all, json.RawMessage(`"`+o.Rule.Chain+`"`))
				all = append(all, o.Rule.Expr...)
			}
		}
	}
	data, _ := json.Marshal(all)
	return string(data)
}
