package firewall

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Finding is a foreign chain that blocks a declared flow of a network.
type Finding struct {
	Owner string // the uid of the network
	// Flow describes the blocked traffic.
	Flow string
	// Table is the family and name of the foreign table.
	Table string
	Chain string
	// Reason is the chain's policy or the blocking rule.
	Reason string
	// Mend lists commands that let the flow through.
	Mend []string
}

// String names the blocking chain and the commands that let the flow through.
func (f Finding) String() string {
	return fmt.Sprintf("the chain %s of the nftables table %s stops %s (%s); to let it through: %s",
		f.Chain, f.Table, f.Flow, f.Reason, strings.Join(f.Mend, "; "))
}

// Findings returns the chains of all other tables that block declared flows. It
// ignores rules that match on more than devices. A finding is therefore wrong
// if an ignored rule accepts the flow, and Findings misses a chain if only an
// ignored rule blocks the flow.
func (r Ruleset) Findings(wanted Rules) []Finding { return r.l.judge(r.name, wanted) }

// Naming returns the family and name of each foreign table with a rule that names the
// device, directly, by a pattern or in an anonymous set.
func (r Ruleset) Naming(device string) []string {
	var tables []string
	for _, o := range r.l.Objects {
		if o.Rule == nil || o.Rule.Table == r.name {
			continue
		}
		table := o.Rule.Family + " " + o.Rule.Table
		if !slices.Contains(tables, table) && slices.ContainsFunc(o.Rule.Expr, func(e json.RawMessage) bool { return mentions(e, device) }) {
			tables = append(tables, table)
		}
	}
	return tables
}

// mentions reports whether a string in the JSON value names the device.
func mentions(value json.RawMessage, device string) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) == nil {
		for _, field := range fields {
			if mentions(field, device) {
				return true
			}
		}
		return false
	}
	var items []json.RawMessage
	if json.Unmarshal(value, &items) == nil {
		return slices.ContainsFunc(items, func(item json.RawMessage) bool { return mentions(item, device) })
	}
	return named(value, device)
}

type flow struct {
	words, hook string
	in, out     string // "" stands for a device that no rule names
}

func (l listing) judge(own string, r Rules) []Finding {
	var found []Finding
	for _, n := range sorted(r.Networks) {
		var flows []flow
		if n.Forward {
			flows = append(flows, flow{"packets through the host from guests on " + n.Bridge + "", "forward", n.Bridge, ""},
				flow{"packets through the host to guests on " + n.Bridge, "forward", "", n.Bridge})
		}
		if n.Services {
			flows = append(flows, flow{"DHCP and DNS on " + n.Bridge, "input", n.Bridge, ""})
		}
		for _, fl := range flows {
			for _, o := range l.Objects {
				c := o.Chain
				if c == nil || c.Hook != fl.hook || c.Family == "bridge" || c.Table == own || c.Policy == "" {
					continue
				}
				walk := walker{l: l, family: c.Family, table: c.Table, flow: fl}
				verdict, reason := walk.chain(c.Name, 0)
				if verdict == "" && c.Policy == "drop" {
					verdict, reason = "drop", "its policy is drop"
				}
				if verdict != "drop" {
					continue
				}
				found = append(found, Finding{
					Owner: n.Owner, Flow: fl.words, Table: c.Family + " " + c.Table, Chain: c.Name,
					Reason: reason, Mend: mend(l, c, fl),
				})
			}
		}
	}
	return found
}

type walker struct {
	l             listing
	family, table string
	flow          flow
}

const maxDepth = 16 // the kernel's limit of nested jumps

// chain returns the verdict of the chain's rules for the flow: accept, drop, or
// "" if no rule decides. depth is the number of jumps that led to the chain.
func (w walker) chain(name string, depth int) (verdict, reason string) {
	if depth > maxDepth {
		return "", ""
	}
	for _, o := range w.l.Objects {
		r := o.Rule
		if r == nil || r.Family != w.family || r.Table != w.table || r.Chain != name {
			continue
		}
		verdict, reason = w.rule(r, depth)
		if verdict == "return" {
			return "", ""
		}
		if verdict != "" {
			return verdict, reason
		}
	}
	return "", ""
}

func (w walker) rule(r *nftRule, depth int) (verdict, reason string) {
	for _, raw := range r.Expr {
		var e map[string]json.RawMessage
		if json.Unmarshal(raw, &e) != nil {
			return "", "" // an expression without a JSON form
		}
		for kind, body := range e {
			switch kind {
			case "counter", "comment", "log", "limit":
				if kind == "limit" {
					return "", ""
				}
			case "match":
				if !w.match(body) {
					return "", ""
				}
			case "accept", "return":
				return kind, ""
			case "drop", "reject":
				return "drop", "a rule of " + r.Chain + " drops it"
			case "jump", "goto":
				var to struct {
					Target string `json:"target"`
				}
				if json.Unmarshal(body, &to) != nil || to.Target == "" {
					return "", ""
				}
				verdict, reason = w.chain(to.Target, depth+1)
				if verdict == "" && kind == "goto" {
					verdict = "return"
				}
				if verdict != "" {
					return verdict, reason
				}
			default:
				return "", ""
			}
		}
	}
	return "", ""
}

// match reports whether the expression only compares a device, and the flow's
// device matches.
func (w walker) match(body json.RawMessage) bool {
	var m struct {
		Op   string `json:"op"`
		Left struct {
			Meta *struct {
				Key string `json:"key"`
			} `json:"meta"`
		} `json:"left"`
		Right json.RawMessage `json:"right"`
	}
	if json.Unmarshal(body, &m) != nil || m.Left.Meta == nil {
		return false
	}
	var device string
	switch m.Left.Meta.Key {
	case "iifname", "iif":
		device = w.flow.in
	case "oifname", "oif":
		device = w.flow.out
	default:
		return false
	}
	hit := device != "" && named(m.Right, device)
	switch m.Op {
	case "==", "in":
		return hit
	case "!=":
		return !hit
	}
	return false
}

// named reports whether the right side of a match names the device, directly,
// by a pattern or in a set.
func named(right json.RawMessage, device string) bool {
	var one string
	if json.Unmarshal(right, &one) == nil {
		if prefix, ok := strings.CutSuffix(one, "*"); ok {
			return strings.HasPrefix(device, prefix)
		}
		return one == device
	}
	var many struct {
		Set []json.RawMessage `json:"set"`
	}
	if !bytes.HasPrefix(bytes.TrimSpace(right), []byte("{")) || json.Unmarshal(right, &many) != nil {
		return false
	}
	return slices.ContainsFunc(many.Set, func(r json.RawMessage) bool { return named(r, device) })
}

// mend returns the commands of the tool that made the chain, e.g. ufw or
// firewall-cmd.
func mend(l listing, c *nftChain, fl flow) []string {
	has := func(prefix string) bool {
		return slices.ContainsFunc(l.Objects, func(o object) bool {
			return o.Chain != nil && o.Chain.Table == c.Table && strings.HasPrefix(o.Chain.Name, prefix)
		})
	}
	bridge, word, option := fl.in, "in", "-i"
	if bridge == "" {
		bridge, word, option = fl.out, "out", "-o"
	}
	tables := "iptables"
	if c.Family == "ip6" {
		tables = "ip6tables"
	}
	switch {
	case c.Table == "firewalld":
		return []string{"firewall-cmd --permanent --zone=trusted --add-interface=" + bridge, "firewall-cmd --reload"}
	case has("ufw") && fl.hook == "input":
		return []string{"ufw allow in on " + bridge}
	case has("ufw"):
		return []string{"ufw route allow " + word + " on " + bridge}
	case has("DOCKER-USER") && fl.hook == "forward":
		return []string{fmt.Sprintf("%s -I DOCKER-USER %s %s -j ACCEPT", tables, option, bridge)}
	}
	return []string{fmt.Sprintf("nft insert rule %s %s %s %sifname %q accept", c.Family, c.Table, c.Name, word[:1], bridge)}
}
