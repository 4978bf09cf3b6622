//go:build integration

package networks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler/hostnet/nettest"
	"hostler/tests/figures"
	"hostler/tests/harness"
)

const (
	many   = 100
	rounds = 3
)

// BenchmarkNetworks makes 100 networks, each a bridge with an address and
// rules of its own, with hostler and with ip and nft, round by round in one
// run, and counts what hostler writes when there is nothing to do.
func BenchmarkNetworks(b *testing.B) {
	a, n := bare(b)
	file := a.File("site", networksOf(many))
	var ours, theirs, batch []time.Duration
	for range rounds {
		began := time.Now()
		a.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "2m")
		ours = append(ours, time.Since(began))
		a.Run("delete", "declaration/site", "--wait", "--timeout", "2m")
		theirs = append(theirs, byHand(n))
		batch = append(batch, byBatch(n))
	}
	record(b, figures.Ratio(fmt.Sprintf("apply of %d networks / ip and nft commands", many), ours, theirs, 0.25))
	record(b, figures.Ratio(fmt.Sprintf("apply of %d networks / one ip -batch and one nft -f", many), ours, batch, 1))

	a.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "2m")
	_, links := start(b, n, "ip -o monitor all")
	_, rules := start(b, n, "nft monitor")
	first := passed(b, a)
	for i := range 10 {
		sh(n, fmt.Sprintf("ip link set lo alias look%d", i)) // wakes the worker
		harness.Wait(b, "a pass", 10*time.Second, func() error {
			if passed(b, a) < first+i+1 {
				return fmt.Errorf("no pass")
			}
			return nil
		})
	}
	writes := 0
	for _, said := range []string{links(), rules()} {
		for line := range strings.Lines(said) {
			if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, " lo:") && !strings.Contains(line, "alias look") {
				writes++
				b.Log(line)
			}
		}
	}
	record(b, figures.Bound(fmt.Sprintf("netlink writes of passes over %d networks with nothing to do", many), float64(writes), 0, "writes",
		fmt.Sprintf("%d passes", passed(b, a)-first)))
	if writes > 0 {
		b.Error("a pass with nothing to do writes")
	}
}

func record(b *testing.B, f figures.Figure) {
	b.Helper()
	if err := figures.Record(f); err != nil {
		b.Fatal(err)
	}
}

func networksOf(n int) string {
	var b strings.Builder
	b.WriteString("version: 1\nnetworks:\n")
	for i := range n {
		fmt.Fprintf(&b, "  n%d: {bridge: brh%d, addresses: [10.222.%d.1/24], forwarding: true, nat: true}\n", i, i, i)
	}
	return b.String()
}

// byHand makes as many networks with one command after another, as an
// administrator's script would, and removes them again unmeasured.
func byHand(n *nettest.Namespace) time.Duration {
	script := fmt.Sprintf(`set -e
nft add table inet byhand
nft 'add chain inet byhand post { type nat hook postrouting priority srcnat; }'
nft 'add chain inet byhand pre { type filter hook prerouting priority raw; }'
for i in $(seq 0 %d); do
  ip link add brx$i type bridge forward_delay 0
  ip link set brx$i alias hand:$i
  ip addr add 10.222.$i.1/24 dev brx$i
  ip link set brx$i up
  nft add rule inet byhand pre iifname brx$i ip saddr != 10.222.$i.0/24 drop
  nft add rule inet byhand post oifname != brx$i ip saddr 10.222.$i.0/24 masquerade
done`, many-1)
	began := time.Now()
	sh(n, script)
	took := time.Since(began)
	removeByHand(n)
	return took
}

// byBatch makes the same as byHand with one ip and one nft process, which take
// all their commands at once, and removes it again unmeasured.
func byBatch(n *nettest.Namespace) time.Duration {
	var links, rules strings.Builder
	rules.WriteString("add table inet byhand\nadd chain inet byhand post { type nat hook postrouting priority srcnat; }\n" +
		"add chain inet byhand pre { type filter hook prerouting priority raw; }\n")
	for i := range many {
		fmt.Fprintf(&links, "link add brx%[1]d type bridge forward_delay 0\nlink set brx%[1]d alias hand:%[1]d\naddr add 10.222.%[1]d.1/24 dev brx%[1]d\nlink set brx%[1]d up\n", i)
		fmt.Fprintf(&rules, "add rule inet byhand pre iifname brx%[1]d ip saddr != 10.222.%[1]d.0/24 drop\n"+
			"add rule inet byhand post oifname != brx%[1]d ip saddr 10.222.%[1]d.0/24 masquerade\n", i)
	}
	input := func(text string) string { return "cat <<'END'\n" + text + "END\n" }
	began := time.Now()
	sh(n, "set -e\n("+input(links.String())+") | ip -batch -\n("+input(rules.String())+") | nft -f -")
	took := time.Since(began)
	removeByHand(n)
	return took
}

// removeByHand removes what byHand and byBatch made. The kernel removes a group of
// interfaces at once, and one after the other only 25 a second.
func removeByHand(n *nettest.Namespace) {
	sh(n, fmt.Sprintf(`set -e
nft delete table inet byhand
for i in $(seq 0 %d); do ip link set brx$i group 77; done
ip link del group 77`, many-1))
}
