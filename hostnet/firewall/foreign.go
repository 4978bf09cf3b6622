package firewall

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Finding is a foreign chain that stops what a network declares.
type Finding struct {
	Owner  string // of the network
	Bridge string
	// Flow is what is stopped, in words.
	Flow string
	// Table is the family and name of the foreign table.
	Table string
	Chain string
	// Reason is its policy or a rule of it.
	Reason string
	// Mend are the commands that let the flow through.
	Mend []string
}

// String says what is in the way and what mends it.
func (f Finding) String() string {
	return fmt.Sprintf("the chain %s of the nftables table %s stops %s (%s); to let it through: %s",
		f.Chain, f.Table, f.Flow, f.Reason, strings.Join(f.Mend, "; "))
}

// Findings reads all other tables and says which of them stop declared flows.
// Rules that match on more than devices are taken as not matching, so a
// finding may be wrong where a foreign rule lets just this flow through by
// address; a chain that is not found to stop anything does not by its devices
// and its policy.
func (f *Firewall) Findings(ctx context.Context, r Rules) ([]Finding, error) {
	l, err := f.nft(ctx, "-j", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	return f.judge(l, r), nil
}

type flow struct {
	words, hook string
	in, out     string // "" is some device that no rule names
}

func (f *Firewall) judge(l listing, r Rules) []Finding {
	var found []Finding
	for _, n := range sorted(r.Networks) {
		var flows []flow
		if n.Forward {
			flows = append(flows, flow{"what guests on " + n.Bridge + " send through the host", "forward", n.Bridge, ""},
				flow{"what comes through the host to guests on " + n.Bridge, "forward", "", n.Bridge})
		}
		if n.Services {
			flows = append(flows, flow{"DHCP and DNS on " + n.Bridge, "input", n.Bridge, ""})
		}
		for _, fl := range flows {
			for _, o := range l.Objects {
				c := o.Chain
				if c == nil || c.Hook != fl.hook || c.Family == "bridge" || c.Table == f.name || c.Policy == "" {
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
					Owner: n.Owner, Bridge: n.Bridge, Flow: fl.words, Table: c.Family + " " + c.Table, Chain: c.Name,
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

const maxDepth = 16 // the kernel's own limit of jumps

// chain returns accept, drop or "" for the end of the chain.
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
			return "", "" // a form that nft itself has no words for
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

// match says that the flow surely matches: by device, or by what every packet
// of a new connection has.
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

// named says that the right side of a match names the device, by itself, by a
// pattern or in a set.
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

// mend names the commands of whoever made the chain.
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
