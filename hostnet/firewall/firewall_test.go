package firewall

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"hostler/internal/fault"
)

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func lan() Network {
	return Network{Owner: "u1", Bridge: "br-lan", Subnets: prefixes("10.20.0.1/24", "fd00:20::1/64"), Forward: true, NAT: true, Services: true}
}

// N4: incomplete rules are refused before anything is written.
func TestCheck(t *testing.T) {
	guest := netip.MustParseAddr("10.20.0.10")
	for message, r := range map[string]Rules{
		`cannot make firewall rules: "a\"b" is no owner`:                                        {Networks: []Network{{Owner: `a"b`, Bridge: "br0"}}},
		`cannot make firewall rules: "br 0" is not the name of a bridge`:                        {Networks: []Network{{Owner: "u", Bridge: "br 0"}}},
		`cannot make firewall rules: the bridge br0 is listed twice`:                            {Networks: []Network{{Owner: "u", Bridge: "br0"}, {Owner: "v", Bridge: "br0"}}},
		`cannot make firewall rules: the tcp port 80 is published by m1 and m2`:                 {Networks: []Network{lan()}, Publish: []Publish{{"m1", "br-lan", "tcp", 80, guest, 80, nil}, {"m2", "br-lan", "tcp", 80, guest, 81, nil}}},
		`cannot make firewall rules: a published port is of tcp or udp, not "sctp"`:             {Networks: []Network{lan()}, Publish: []Publish{{"m1", "br-lan", "sctp", 80, guest, 80, nil}}},
		`cannot make firewall rules: a published port has a number from 1 to 65535`:             {Networks: []Network{lan()}, Publish: []Publish{{"m1", "br-lan", "tcp", 0, guest, 80, nil}}},
		`cannot make firewall rules: the published tcp port 80 has no address to lead to`:       {Networks: []Network{lan()}, Publish: []Publish{{"m1", "br-lan", "tcp", 80, netip.Addr{}, 80, nil}}},
		`cannot make firewall rules: the published tcp port 80 leads to the unknown bridge br9`: {Networks: []Network{lan()}, Publish: []Publish{{"m1", "br9", "tcp", 80, guest, 80, nil}}},
		`cannot make firewall rules: 9 to 8 is no range of ports`:                               {Networks: []Network{lan()}, Ingress: []Ingress{{Owner: "m", Bridge: "br-lan", Address: guest, Protocol: "tcp", First: 9, Last: 8}}},
		`cannot make firewall rules: icmp has no ports`:                                         {Networks: []Network{lan()}, Ingress: []Ingress{{Owner: "m", Bridge: "br-lan", Address: guest, Protocol: "icmp", First: 9}}},
		`cannot make firewall rules: ingress is of tcp, udp or icmp, not "gre"`:                 {Networks: []Network{lan()}, Ingress: []Ingress{{Owner: "m", Bridge: "br-lan", Address: guest, Protocol: "gre", First: 9}}},
		`cannot make firewall rules: "02:00:00:00:00:0G" is not a MAC address`:                  {Networks: []Network{lan()}, Guests: []Guest{{Owner: "m", Bridge: "br-lan", MAC: "02:00:00:00:00:0G"}}},
		`cannot make firewall rules: the guest m is on the unknown bridge br9`:                  {Networks: []Network{lan()}, Guests: []Guest{{Owner: "m", Bridge: "br9", MAC: "02:00:00:00:00:01"}}},
		`cannot make firewall rules: "p\"x" is no name of a network device`:                     {Networks: []Network{lan()}, Guests: []Guest{{Owner: "m", Bridge: "br-lan", MAC: "02:00:00:00:00:01", Ports: []string{`p"x`}}}},
	} {
		if err := r.Check(); err == nil || err.Error() != message || fault.KindOf(err) == fault.Transient {
			t.Errorf("got %v, want %s", err, message)
		}
	}
}

// A declaration in another order renders the same script, so nothing is
// rewritten.
func TestOrderDoesNotMatter(t *testing.T) {
	a := netip.MustParseAddr("10.20.0.10")
	second := Network{Owner: "u2", Bridge: "br-b", Subnets: prefixes("10.30.0.1/24")}
	one := Rules{
		Networks: []Network{lan(), second},
		Publish:  []Publish{{"m1", "br-lan", "tcp", 80, a, 80, nil}, {"m1", "br-lan", "udp", 53, a, 53, nil}},
	}
	other := Rules{Networks: []Network{second, lan()}, Publish: []Publish{one.Publish[1], one.Publish[0]}}
	if script("t", []string{inet}, table(one)) != script("t", []string{inet}, table(other)) {
		t.Error("the scripts differ")
	}
}

// D10: sources, ranges and icmp. Sources of one IP version admit no address of
// the other.
func TestSourcesAndRanges(t *testing.T) {
	four, six := netip.MustParseAddr("10.20.0.10"), netip.MustParseAddr("fd00:20::10")
	r := Rules{Networks: []Network{lan()}, Ingress: []Ingress{
		{Owner: "m", Bridge: "br-lan", Address: four, Protocol: "tcp", First: 8000, Last: 8010, Sources: prefixes("192.0.2.9/24", "2001:db8::/32")},
		{Owner: "m", Bridge: "br-lan", Address: six, Protocol: "icmp", Sources: prefixes("192.0.2.0/24")},
		{Owner: "m", Bridge: "br-lan", Address: six, Protocol: "udp", First: 53, Sources: prefixes("::/0")},
	}}
	text := script("t", []string{inet}, table(r))
	if !strings.Contains(text, `oifname "br-lan" ip saddr { 192.0.2.0/24 } ip daddr 10.20.0.10 tcp dport 8000-8010 accept`) {
		t.Error(text)
	}
	if strings.Contains(text, "ip6 daddr fd00:20::10 meta l4proto") {
		t.Errorf("IPv6 is let in though only IPv4 was named: %s", text)
	}
	if !strings.Contains(text, `oifname "br-lan" ip6 daddr fd00:20::10 udp dport 53 accept`) {
		t.Error(text)
	}
}

func TestTable(t *testing.T) {
	for namespace, want := range map[string]string{"hostler": "hostler", "second-one": "hostler_second_one"} {
		if got := tableName(namespace); got != want {
			t.Errorf("%s: %s", namespace, got)
		}
	}
}

func chainObject(family, table, name, hook, policy string) string {
	return `{"chain":{"family":"` + family + `","table":"` + table + `","name":"` + name + `","hook":"` + hook + `","policy":"` + policy + `"}}`
}

func ruleObject(family, table, chain, expr string) string {
	return `{"rule":{"family":"` + family + `","table":"` + table + `","chain":"` + chain + `","expr":[` + expr + `]}}`
}

func device(key, op, right string) string {
	return `{"match":{"op":"` + op + `","left":{"meta":{"key":"` + key + `"}},"right":` + right + `}}`
}

func TestFindings(t *testing.T) {
	docker := []string{
		chainObject("ip", "filter", "FORWARD", "forward", "drop"), chainObject("ip", "filter", "DOCKER-USER", "", ""),
		ruleObject("ip", "filter", "FORWARD", `{"counter":{"packets":1,"bytes":2}},{"jump":{"target":"DOCKER-USER"}}`),
		ruleObject("ip", "filter", "FORWARD", device("oifname", "==", `"docker0"`)+`,{"accept":null}`),
	}
	for _, c := range []struct {
		name    string
		objects []string
		want    []string
	}{
		{"nothing else", nil, nil},
		{"our own table", []string{chainObject("inet", "hostler", "x", "forward", "drop")}, nil},
		{"a policy of accept", []string{chainObject("ip", "filter", "FORWARD", "forward", "accept")}, nil},
		{"docker", docker, []string{
			"the chain FORWARD of the nftables table ip filter stops packets through the host from guests on br-lan (its policy is drop); to let it through: iptables -I DOCKER-USER -i br-lan -j ACCEPT",
			"the chain FORWARD of the nftables table ip filter stops packets through the host to guests on br-lan (its policy is drop); to let it through: iptables -I DOCKER-USER -o br-lan -j ACCEPT",
		}},
		{"docker, mended", append(docker,
			ruleObject("ip", "filter", "DOCKER-USER", device("iifname", "==", `"br-*"`)+`,{"accept":null}`),
			ruleObject("ip", "filter", "DOCKER-USER", device("oifname", "==", `{"set":["br0","br-lan"]}`)+`,{"accept":null}`)), nil},
		{"ufw", []string{chainObject("ip", "filter", "INPUT", "input", "drop"), chainObject("ip", "filter", "ufw-user-input", "", "")}, []string{
			"the chain INPUT of the nftables table ip filter stops DHCP and DNS on br-lan (its policy is drop); to let it through: ufw allow in on br-lan",
		}},
		{"firewalld rejects", []string{
			chainObject("inet", "firewalld", "filter_FORWARD", "forward", "accept"),
			ruleObject("inet", "firewalld", "filter_FORWARD", device("iifname", "!=", `"eth0"`)+`,{"goto":{"target":"zone"}}`),
			ruleObject("inet", "firewalld", "zone", `{"reject":{"type":"icmpx"}}`),
		}, []string{
			"the chain filter_FORWARD of the nftables table inet firewalld stops packets through the host from guests on br-lan (a rule of zone drops it); to let it through: firewall-cmd --permanent --zone=trusted --add-interface=br-lan; firewall-cmd --reload",
			"the chain filter_FORWARD of the nftables table inet firewalld stops packets through the host to guests on br-lan (a rule of zone drops it); to let it through: firewall-cmd --permanent --zone=trusted --add-interface=br-lan; firewall-cmd --reload",
		}},
		{"a drop of something else", []string{
			chainObject("inet", "mine", "f", "forward", "accept"),
			ruleObject("inet", "mine", "f", `{"match":{"op":"==","left":{"payload":{"protocol":"tcp","field":"dport"}},"right":25}},{"drop":null}`),
		}, nil},
		{"a loop of jumps", []string{chainObject("inet", "mine", "f", "forward", "accept"), ruleObject("inet", "mine", "f", `{"jump":{"target":"f"}}`)}, nil},
	} {
		l, err := parse([]byte(`{"nftables":[` + strings.Join(c.objects, ",") + `]}`))
		if err != nil {
			t.Fatal(c.name, err)
		}
		var got []string
		for _, found := range l.judge("hostler", Rules{Networks: []Network{lan()}}) {
			got = append(got, found.String())
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func FuzzJudge(f *testing.F) {
	f.Add(`{"nftables":[` + chainObject("ip", "filter", "FORWARD", "forward", "drop") + `,` + ruleObject("ip", "filter", "FORWARD", device("iifname", "==", `"x"`)) + `]}`)
	f.Fuzz(func(_ *testing.T, text string) {
		if l, err := parse([]byte(text)); err == nil {
			l.matches("hostler", nil)
			l.rulesOf("hostler")
			l.judge("hostler", Rules{Networks: []Network{lan()}})
		}
	})
}

// A hundred guests need as many rules as two, declared in any order: frames and
// listings do not pass one rule per guest.
func TestGuestsAreElementsOfSets(t *testing.T) {
	many := func(n int) Rules {
		r := Rules{Networks: []Network{lan()}}
		for i := range n {
			r.Guests = append(r.Guests, Guest{
				Owner: "m", Bridge: "br-lan", MAC: fmt.Sprintf("02:00:00:00:00:%02x", i), Ports: []string{fmt.Sprintf("hn%d", i)},
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 20, 0, byte(10 + i)}), netip.MustParseAddr(fmt.Sprintf("fd00:20::%x", 16+i))},
			})
		}
		return r
	}
	count := func(r Rules) (n int) {
		for _, c := range table(r) {
			n += len(c.rules)
		}
		return n
	}
	if two, hundred := count(many(2)), count(many(100)); two != hundred {
		t.Errorf("%d rules for two guests, %d for a hundred", two, hundred)
	}
	one, other := many(9), many(9)
	slices.Reverse(other.Guests)
	if script("t", []string{inet, bridge}, table(one)) != script("t", []string{inet, bridge}, table(other)) {
		t.Error("another order gives another script")
	}
	text := script("t", []string{inet, bridge}, table(many(1)))
	for _, want := range []string{
		`udp dport 67 iifname . @th,288,48 != { "hn0" . 0x020000000000 } drop`,
		`iifname . ip6 saddr != { "hn0" . fe80::ff:fe00:0 } drop`,
		`iifname . @th,64,128 != { "hn0" . 0xfd000020000000000000000000000010 } drop`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// On a network over the host's NIC, a guest with IPv4 addresses alone may use
// any IPv6 address but those of the host and of other machines' interfaces.
// Attack: network
func TestDeclaredAddressesAreNotChosen(t *testing.T) {
	guest := func(owner, bridge string, n int, addresses ...string) Guest {
		g := Guest{Owner: owner, Bridge: bridge, MAC: fmt.Sprintf("02:00:00:00:00:%02x", n), Ports: []string{fmt.Sprintf("hn%d", n)}}
		for _, a := range addresses {
			g.Addresses = append(g.Addresses, netip.MustParseAddr(a))
		}
		return g
	}
	router := guest("m4", "br-up", 4, "fd00::4")
	router.Router = true
	unnamed := guest("m5", "br-up", 5, "fd00::5")
	unnamed.Ports = nil
	r := Rules{
		Networks: []Network{
			{Owner: "u1", Bridge: "br-up", Forward: true, HostAccess: true, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fe80::1")}},
			{Owner: "u2", Bridge: "br-other", Forward: true, HostAccess: true},
		},
		Guests: []Guest{
			guest("m2", "br-up", 2, "192.0.2.2"), guest("m3", "br-up", 3, "192.0.2.3", "fd00::3"), router, unnamed,
			// Another interface of the machine m2.
			guest("m2", "br-up", 6, "fd00::6"),
			guest("m7", "br-other", 7, "192.0.2.7"), guest("m8", "br-other", 8, "fd00::8"),
			guest("m9", "br-up", 9),
		},
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	text := script("t", []string{bridge}, table(r))
	const (
		numbers = "{ 0xfd000000000000000000000000000001, 0xfd000000000000000000000000000003, 0xfd000000000000000000000000000004, " +
			"0xfd000000000000000000000000000005, 0xfd000000000000000000000000000006, 0xfe800000000000000000000000000001 }"
		own = `iifname . @th,64,128 != { "hn2" . 0xfd000000000000000000000000000006 } drop`
	)
	at := strings.Index(text, `iifname { "hn2", "hn7" } accept`)
	for _, want := range []string{
		`iifname { "hn2" } ip6 saddr { fd00::1, fd00::3, fd00::4, fd00::5, fd00::6, fe80::1 } iifname . ip6 saddr != { "hn2" . fd00::6 } drop`,
		`iifname { "hn2" } icmpv6 type nd-neighbor-advert @th,64,128 ` + numbers + " " + own,
		`iifname { "hn2" } ip6 saddr :: icmpv6 type nd-neighbor-solicit @th,64,128 ` + numbers + " " + own,
		`iifname { "hn7" } ip6 saddr { fd00::8 }  drop`,
		`iifname { "hn7" } icmpv6 type nd-neighbor-advert @th,64,128 { 0xfd000000000000000000000000000008 }  drop`,
		`iifname { "hn7" } ip6 saddr :: icmpv6 type nd-neighbor-solicit @th,64,128 { 0xfd000000000000000000000000000008 }  drop`,
	} {
		if i := strings.Index(text, want); i < 0 || i > at {
			t.Errorf("%s at %d, the accept at %d, in\n%s", want, i, at, text)
		}
	}
	// Without such addresses there is nothing to compare.
	r.Guests, r.Networks[0].Addresses = r.Guests[:1], nil
	if text := script("t", []string{bridge}, table(r)); strings.Contains(text, "{  }") || strings.Contains(text, `iifname { "hn2" } ip6 saddr { `) {
		t.Errorf("alone:\n%s", text)
	}
}

// A rule names a device directly, by a pattern, in a set or in a verdict map. Other
// devices, log prefixes of other words and our own table do not count.
func TestNaming(t *testing.T) {
	rule := func(table, expr string) string {
		return fmt.Sprintf(`{"rule":{"family":"inet","table":%q,"chain":"in","expr":[%s]}}`, table, expr)
	}
	match := `{"match":{"op":"==","left":{"meta":{"key":"iifname"}},"right":%s}}`
	l, err := parse([]byte(`{"nftables":[` + strings.Join([]string{
		rule("direct", fmt.Sprintf(match, `"eth0"`)),
		rule("direct", fmt.Sprintf(match, `"eth0"`)),
		rule("pattern", fmt.Sprintf(match, `"eth*"`)),
		rule("set", fmt.Sprintf(match, `{"set":["lo","eth0"]}`)),
		rule("map", `{"vmap":{"key":{"meta":{"key":"iifname"}},"data":{"set":[["eth0",{"goto":{"target":"lan"}}]]}}}`),
		rule("other", fmt.Sprintf(match, `"eth01"`)+`,{"log":{"prefix":"eth0: "}}`),
		rule("hostler", fmt.Sprintf(match, `"eth0"`)),
	}, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	got := Ruleset{name: "hostler", l: l}.Naming("eth0")
	if want := []string{"inet direct", "inet pattern", "inet set", "inet map"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
