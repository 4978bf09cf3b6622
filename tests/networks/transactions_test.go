//go:build integration

package networks

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler/tests/figures"
	"hostler/tests/harness"
)

// The first declaration of a hundred published ports and a hundred NICs is one
// transaction of nft, and so is a change to a hundred other ports and a hundred
// NICs more. A change of addresses is two: the previous addresses leave when the
// instances have the new ones.
func TestChangeOfManyPortsIsOneTransaction(t *testing.T) {
	declared, changed, moved := transactions(t)
	if declared != 1 || changed != 1 || moved > 2 {
		t.Errorf("%d transactions of nft declare the ports and NICs, %d change them and %d change the addresses; want 1, 1 and at most 2", declared, changed, moved)
	}
}

// BenchmarkPorts records the same counts.
func BenchmarkPorts(b *testing.B) {
	declared, changed, moved := transactions(b)
	record(b, figures.Bound("nft transactions for 100 published ports and 100 NICs changed", float64(changed), 1, "transactions",
		fmt.Sprintf("%d for their first declaration, %d for other addresses of 200 NICs", declared, moved)))
}

// transactions declares and changes a hundred published ports and at least as
// many NICs of machines that do not run, and returns how many transactions of
// nft each took.
func transactions(t testing.TB) (declared, changed, moved int) {
	t.Helper()
	_, a := both(t)
	for _, step := range []struct {
		nics, addresses, ports int
		counted                *int
	}{{1, 0, 0, &declared}, {2, 0, 1, &changed}, {2, 1, 2, &moved}} {
		count := loads(t, "hostler_nets")
		a.Run("apply", "--allow", "destroy,restart", "-f", a.File("site", portsAndNICs(step.nics, step.addresses, step.ports)), "--wait", "--timeout", "3m")
		*step.counted = count()
	}
	t.Logf("%d, %d and %d transactions", declared, changed, moved)
	return declared, changed, moved
}

// portsAndNICs declares ten networks and ten machines. Each machine has so many
// NICs on each network, and publishes ten ports. addresses and ports choose the
// addresses and the ports.
func portsAndNICs(nics, addresses, ports int) string {
	const networks, machines = 10, 10
	var b strings.Builder
	b.WriteString("version: 1\nnetworks:\n")
	for n := range networks {
		fmt.Fprintf(&b, "  lan%[1]d: {bridge: br-hlan%[1]d, addresses: [10.221.%[1]d.1/24], forwarding: true, nat: true}\n", n)
	}
	b.WriteString("machines:\n")
	for m := range machines {
		fmt.Fprintf(&b, "  m%d:\n    type: lxd\n    image: \"lxd:tiny\"\n    running: false\n    networks:\n", m)
		for i := range networks * nics {
			fmt.Fprintf(&b, "      eth%d: {network: lan%d, address: 10.221.%d.%d/24}\n", i, i%networks, i%networks, 10+100*addresses+i/networks*machines+m)
		}
		b.WriteString("    publish:\n")
		for i := range networks {
			fmt.Fprintf(&b, "      - {protocol: tcp, host-port: %d, port: 80}\n", 20000+(ports*machines+m)*networks+i)
		}
	}
	return b.String()
}

// loads counts the transactions of nft that change a table, from now until the
// returned function is called.
func loads(t testing.TB, table string) (count func() int) {
	t.Helper()
	cmd := exec.Command("nft", "monitor")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	t.Cleanup(end)
	const begins, ends = "hostler_begins", "hostler_ends"
	began, counted := make(chan int, 1), make(chan int, 1)
	go func() {
		n, ours, lines := 0, false, bufio.NewScanner(out)
		lines.Buffer(nil, 64<<20) // a set stands on one line
		for lines.Scan() {
			switch line := lines.Text() + " "; {
			case strings.Contains(line, begins):
				put(began, 0)
			case strings.Contains(line, ends):
				put(counted, n)
			case strings.Contains(line, "# ERROR"):
				t.Error(line)
			case strings.Contains(line, "# new generation"):
				if ours {
					n++
				}
				ours = false
			case strings.Contains(line, " "+table+" "):
				ours = true
			}
		}
	}()
	// A table that is made and deleted in one transaction marks a moment.
	mark := func(table string, seen <-chan int) (n int) {
		harness.Wait(t, "nft monitor", 10*time.Second, func() error {
			harness.Run(t, "nft", fmt.Sprintf("add table inet %[1]s; delete table inet %[1]s", table))
			select {
			case n = <-seen:
				return nil
			case <-time.After(100 * time.Millisecond):
				return fmt.Errorf("it shows no table %s", table)
			}
		})
		return n
	}
	mark(begins, began)
	return func() int {
		defer end()
		return mark(ends, counted)
	}
}

// put sends a value unless one waits to be received.
func put(to chan<- int, n int) {
	select {
	case to <- n:
	default:
	}
}
