//go:build integration

package networks

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// Another address of a running machine waits for its restart, and so do its published
// ports.
func TestPublishedPortsWaitForTheRestart(t *testing.T) {
	_, a := both(t)
	a.Apply("site", lan)
	a.Run("exec", "web", "--", "httpd", "-p", "80", "-h", "/etc")
	const url = "http://127.0.0.1:18080/passwd"
	harness.Wait(t, "the published port", 30*time.Second, func() error { return answer(url) })
	harness.Wait(t, "the guest's address", 30*time.Second, func() error { // it may come after the guest is ready
		if out := a.Run("get", "machines"); !strings.Contains(out, "10.221.7.10") {
			return errors.New(out)
		}
		return nil
	})
	file := a.File("site", strings.Replace(lan, "10.221.7.10", "10.221.7.12", 1))
	if code, out := a.Exit("apply", "-f", file); code != 1 || !strings.Contains(out, "--allow restart") {
		t.Errorf("apply exits with %d:\n%s", code, out)
	}
	harness.Wait(t, "the rules for the new address", 10*time.Second, func() error {
		if rules := harness.Run(t, "nft", "list", "ruleset"); !strings.Contains(rules, "10.221.7.12") {
			return errors.New("there are none")
		}
		return nil
	})
	harness.Wait(t, "the port while the restart waits", 20*time.Second, func() error { return answer(url) })
	a.Run("apply", "-f", file, "--wait", "--allow", "restart", "--timeout", "2m")
	a.Run("exec", "web", "--", "httpd", "-p", "80", "-h", "/etc")
	harness.Wait(t, "the published port at the new address", 30*time.Second, func() error { return answer(url) })
	gone(t, a)
}

// Another MTU of a network waits for the restart of its machines, which keep their
// interfaces until then.
func TestMTUWaitsForTheRestart(t *testing.T) {
	_, a := both(t)
	a.Apply("site", lan)
	index := a.Run("exec", "web", "--", "cat", "/sys/class/net/eth0/ifindex")
	file := a.File("site", strings.Replace(lan, "dhcp: true", "dhcp: true, mtu: 1400", 1))
	for range 2 {
		if code, out := a.Exit("apply", "-f", file, "--wait", "--timeout", "1m"); code != 1 || !strings.Contains(out, "nic eth0") || !strings.Contains(out, "--allow restart") {
			t.Errorf("apply exits with %d:\n%s", code, out)
		}
	}
	if now := a.Run("exec", "web", "--", "cat", "/sys/class/net/eth0/ifindex"); now != index {
		t.Errorf("its interface %s is replaced by %s", index, now)
	}
	a.Run("apply", "-f", file, "--wait", "--allow", "restart", "--timeout", "2m")
	for _, machine := range []string{"web", "db"} {
		if mtu := a.Run("exec", machine, "--", "cat", "/sys/class/net/eth0/mtu"); strings.TrimSpace(mtu) != "1400" {
			t.Errorf("%s has an MTU of %s", machine, mtu)
		}
	}
	if code, out := a.Exit("plan", "-f", file); code != 0 {
		t.Errorf("after the restart plan exits with %d:\n%s", code, out)
	}
	gone(t, a)
}

// An interface that is declared under another name takes the place of the former at the
// restart, with the same declared address. Until then the guest keeps the former.
func TestInterfaceUnderAnotherName(t *testing.T) {
	_, a := both(t)
	a.Run("apply", "-f", a.File("site", strings.ReplaceAll(lan, "eth0", "lan0")))
	former := map[string]string{"web": "", "db": ""}
	for machine := range former {
		harness.Wait(t, "an address of "+machine, time.Minute, func() error { // its init configures eth0 alone
			_, err := a.Try("exec", machine, "--", "udhcpc", "-i", "lan0", "-n", "-q", "-s", "/etc/udhcpc.script")
			return err
		})
		a.Run("wait", "machine/"+machine, "--for", "ready", "--timeout", "1m")
		former[machine] = a.Run("exec", machine, "--", "ip", "addr", "show", "lan0")
	}
	file := a.File("site", lan)
	for range 2 {
		if code, out := a.Exit("plan", "-f", file); code != 2 || strings.Contains(out, "(live)") || strings.Count(out, "held: --allow restart") != len(former) {
			t.Errorf("plan exits with %d:\n%s", code, out)
		}
		if code, out := a.Exit("apply", "-f", file, "--wait", "--timeout", "1m"); code != 1 || !strings.Contains(out, "nic lan0") || !strings.Contains(out, "--allow restart") {
			t.Errorf("apply exits with %d:\n%s", code, out)
		}
	}
	for machine, before := range former {
		if now := a.Run("exec", machine, "--", "ip", "addr", "show", "lan0"); now != before {
			t.Errorf("%s had\n%s\nand has\n%s", machine, before, now)
		}
	}
	a.Run("apply", "-f", file, "--wait", "--allow", "restart", "--timeout", "2m")
	if has := a.Run("exec", "web", "--", "ip", "addr"); !strings.Contains(has, "10.221.7.10/24 scope global eth0") || strings.Contains(has, "lan0") {
		t.Errorf("after the restart web has\n%s", has)
	}
	harness.Wait(t, "the former interfaces to go", 10*time.Second, func() error {
		if all := networks(t, a)["lan"]; len(all.Guests) != len(former) || len(all.Guests["web/eth0"]) != 1 {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	if code, out := a.Exit("plan", "-f", file); code != 0 {
		t.Errorf("after the restart plan exits with %d:\n%s", code, out)
	}
	gone(t, a)
}

// A change that cuts guests off is announced, and made only when it is allowed;
// the old bridge stays until its guests have moved. The end of the agent changes
// nothing for guests, and a machine that leaves the network and returns gets its
// former address.
func TestChanges(t *testing.T) {
	_, a := both(t)
	a.Apply("site", lan)
	address := networks(t, a)["lan"].Guests["db/eth0"][0]
	served := dnsmasq(a)

	a.Kill()
	if err := answer("http://10.221.7.10:9/"); err == nil {
		t.Error("nothing listens there")
	}
	if now := dnsmasq(a); now != served {
		t.Errorf("dnsmasq was %s and is %s", served, now)
	}
	a.Start()
	clean(t, a) // before this daemon ends with the test
	if code, out := a.Exit("plan", "-f", a.File("site", lan)); code != 0 {
		t.Errorf("after the agent's death plan exits with %d:\n%s", code, out)
	}
	if now := dnsmasq(a); now != served {
		t.Errorf("the next agent started another dnsmasq: %s, %s", served, now)
	}

	moved := strings.Replace(lan, "br-hlan", "br-hlan2", 1)
	file := a.File("site", moved)
	for _, args := range [][]string{{"plan", "-f", file}, {"apply", "--allow", "destroy", "-f", file, "--wait"}} {
		if code, out := a.Exit(args...); code == 0 || !strings.Contains(out, "cuts off machine/db, machine/web") || !strings.Contains(out, "--allow restart") {
			t.Errorf("%v exits with %d:\n%s", args, code, out)
		}
	}
	if _, err := harness.Try(nil, "ip", "link", "show", "br-hlan2"); err == nil {
		t.Error("done unasked")
	}
	harness.Wait(t, "the status to say so", 5*time.Second, func() error {
		if n := networks(t, a)["lan"]; n.Status != "ready" || !strings.Contains(n.Message, "needs restart") {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	a.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--allow", "restart", "--timeout", "2m")
	harness.Wait(t, "the old bridge to go", 30*time.Second, func() error {
		if out, err := harness.Try(nil, "ip", "link", "show", "br-hlan"); err == nil {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	for _, machine := range []string{"web", "db"} {
		a.Run("restart", machine) // the tiny image asks for an address only at its start
		a.Run("wait", "machine/"+machine, "--for", "ready")
	}
	a.Run("exec", "web", "--", "sh", "-c", "httpd -p 80 -h /etc")
	harness.Wait(t, "web by its neighbour", 30*time.Second, func() error { return inside(a, "db", "10.221.7.10", 80) })
	if code, out := a.Exit("plan", "-f", file); code != 0 {
		t.Errorf("after the change plan exits with %d:\n%s", code, out)
	}

	// A renamed network keeps its bridge, its machines and their addresses, and
	// processes in the machines run on.
	for _, names := range [][2]string{{"lan", "lan2"}, {"lan2", "lan"}} {
		text := strings.NewReplacer("  lan:", "  "+names[1]+":", "network: lan", "network: "+names[1]).Replace(moved)
		a.Run("apply", "--allow", "destroy", "-f", a.File("site", text), "--wait", "--timeout", "2m")
		harness.Wait(t, names[0]+" to go", 10*time.Second, func() error {
			all := networks(t, a)
			if now := all[names[1]]; len(all) != 1 || now.Status != "ready" || len(now.Guests["db/eth0"]) != 1 || now.Guests["db/eth0"][0] != address {
				return fmt.Errorf("%+v", all)
			}
			return inside(a, "db", "10.221.7.10", 80)
		})
		if code, out := a.Exit("plan", "-f", a.File("site", text)); code != 0 {
			t.Errorf("as %s plan exits with %d:\n%s", names[1], code, out)
		}
	}

	without := moved[:strings.Index(moved, "  db:")]
	a.Apply("site", without)
	harness.Wait(t, "the address to be released", 5*time.Second, func() error {
		if left := networks(t, a)["lan"].Guests; len(left) != 1 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
	a.Apply("site", moved)
	if again := networks(t, a)["lan"].Guests["db/eth0"]; len(again) != 1 || again[0] != address {
		t.Errorf("db had %s and has %v", address, again)
	}
	// A machine without networks has its hypervisor's own.
	a.Apply("site", without+"  db: {type: lxd, image: \"lxd:tiny\"}\n")
	a.Run("restart", "db")
	harness.Wait(t, "an address of LXD's own bridge", 40*time.Second, func() error {
		if row := a.Machines()["db"]; len(row.Addresses) == 0 || strings.HasPrefix(row.Addresses[0], "10.221.7.") {
			return fmt.Errorf("%+v", row)
		}
		return nil
	})
	gone(t, a)
}
