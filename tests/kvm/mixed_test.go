//go:build integration

package kvm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/kvm/kvmtest"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/hostnet/nettest"
	"hostler/tests/harness"
)

// host is an agent beside a private libvirt and a private LXD.
type host struct {
	kvm   *kvmtest.Server
	lxd   *lxdtest.Server
	agent *harness.Agent
}

func startBoth(t *testing.T) host {
	t.Helper()
	t.Cleanup(harness.KeepParameters(t))
	h := host{lxd: lxdtest.Start(t), kvm: kvmtest.Start(t)}
	h.agent = harness.NewAgent(t, h.lxd.Dir)
	h.agent.Prefix = h.kvm.Prefix()
	h.agent.Configure("namespace: mixed\nretry-delay: 1s\nstart-retries: 2\ntypes: {kvm: {accelerator: tcg}}\n")
	return h
}

// clean has the networks and volumes go, which are the host's, when a test
// fails.
func (h host) clean(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		_, _ = h.agent.Try("delete", "declaration/site", "--wait", "--timeout", "2m")
	})
}

// example reads a file of examples/.
func example(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(t), "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The example with the smallest of guests, whole: a container and a virtual
// machine on one network reach each other and a stranger beyond the host, the
// second apply does nothing, and in the end nothing is left. K1, K3, K5, B1.
func TestMixedExample(t *testing.T) {
	text := example(t, "mixed.yaml")
	for from, to := range map[string]string{
		"type: lxd\n    image: debian/12":                   "type: lxd\n    image: \"lxd:tiny\"",
		"type: kvm\n    image: debian/12\n    memory: 1GiB": "type: kvm\n    image: \"" + kvmtest.TinyReference(t) + "\"\n    memory: 512MiB",
		"size: 1GiB": "size: 8MiB",
	} {
		if !strings.Contains(text, from) {
			t.Fatalf("the example has no %q", from)
		}
		text = strings.Replace(text, from, to, 1)
	}
	outside := nettest.New(t)
	harness.Run(t, "ip", "link", "add", "hkvmout", "type", "veth", "peer", "name", "eth0", "netns", outside.Path())
	t.Cleanup(func() { _, _ = harness.Try(nil, "ip", "link", "delete", "hkvmout") })
	harness.Run(t, "ip", "addr", "add", "198.51.100.1/24", "dev", "hkvmout")
	harness.Run(t, "ip", "link", "set", "hkvmout", "up")
	outside.IP("addr add 198.51.100.2/24 dev eth0") // without a way back but by NAT
	outside.IP("link set eth0 up")
	h := startBoth(t)
	h.agent.Start()
	h.clean(t)
	h.applied(t, text)
	for machine, others := range map[string][]string{"web": {"10.20.0.20"}, "db": {"10.20.0.10", "10.20.0.1", "198.51.100.2"}} {
		for _, other := range others {
			h.reaches(t, machine, other)
		}
	}
	h.plugged(t, text)
	h.readdressed(t, text)
	h.gone(t)
}

// applied applies the example, twice.
func (h host) applied(t *testing.T, text string) {
	t.Helper()
	file := h.agent.File("site", text)
	began := time.Now()
	h.agent.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "9m")
	t.Logf("ready after %s", time.Since(began).Round(time.Second))
	rows := h.agent.Machines()
	for machine, address := range map[string]string{"web": "10.20.0.10", "db": "10.20.0.20"} {
		if row := rows[machine]; row.Status != "running" || !slices.Contains(row.Addresses, address) {
			t.Errorf("%s: %+v", machine, row)
		}
	}
	if code, out := h.agent.Exit("apply", "--allow", "destroy", "-f", file, "--wait"); code != 0 || !strings.Contains(out, "no changes") {
		t.Errorf("the second apply exited with %d:\n%s", code, out)
	}
}

// reaches waits until a machine gets an answer from an address.
func (h host) reaches(t *testing.T, machine, address string) {
	t.Helper()
	harness.Wait(t, machine+" to reach "+address, 30*time.Second, func() error {
		_, err := h.agent.Try("exec", machine, "--", "busybox", "ping", "-c", "1", "-W", "2", address)
		return err
	})
}

// plugged looks for the volume in the guest, which grows, and for a second one
// that comes and goes while the guest runs. V2, V3, V5, V6.
func (h host) plugged(t *testing.T, text string) {
	t.Helper()
	serials := func(want ...string) {
		t.Helper()
		harness.Wait(t, fmt.Sprintf("the disks %v in the guest", want), 30*time.Second, func() error {
			out, err := h.agent.Try("exec", "db", "--", "sh", "-c", "for d in /sys/block/vd*/serial; do echo $(cat $d); done | grep .")
			var found []string
			for line := range strings.Lines(out) {
				found = append(found, strings.TrimSpace(line))
			}
			if err == nil && !slices.Equal(found, want) {
				err = fmt.Errorf("it has %v: %q", found, out)
			}
			return err
		})
	}
	pid := h.kvm.Guest("db")
	serials("data")
	h.agent.Apply("site", strings.NewReplacer("storage: [{volume: data}]", "storage: [{volume: data}, {volume: more}]",
		"volumes:\n", "volumes:\n  more: {provider: loop, size: 4MiB}\n").Replace(text))
	serials("data", "more")
	h.agent.Apply("site", text)
	serials("data")
	// W10: it grows in the running guest, too.
	larger := strings.Replace(text, "size: 8MiB", "size: 16MiB", 1)
	if code, out := h.agent.Exit("plan", "-f", h.agent.File("site", larger)); code != 2 || !strings.Contains(out, "of 16MiB") {
		t.Errorf("the plan, which exited with %d, does not tell of the disk's growth:\n%s", code, out)
	}
	h.agent.Apply("site", larger)
	harness.Wait(t, "the larger disk in the guest", 30*time.Second, func() error {
		out, err := h.agent.Try("exec", "db", "--", "sh", "-c", "for d in /sys/block/vd*; do [ \"$(cat $d/serial)\" != data ] || cat $d/size; done")
		if err == nil && strings.TrimSpace(out) != "32768" {
			err = fmt.Errorf("it has %q sectors of 512 bytes", out)
		}
		return err
	})
	if now := h.kvm.Guest("db"); now != pid {
		t.Errorf("the guest was restarted: process %d, was %d", now, pid)
	}
}

// readdressed gives the virtual machine another address. The guest learns it at its
// restart and keeps the former one until that is allowed.
func (h host) readdressed(t *testing.T, text string) {
	t.Helper()
	file := h.agent.File("site", strings.NewReplacer("address: 10.20.0.20/24", "address: 10.20.0.30/24", "size: 8MiB", "size: 16MiB").Replace(text))
	if code, out := h.agent.Exit("apply", "-f", file); code != 1 || !strings.Contains(out, "nic eth0") || !strings.Contains(out, "--allow restart") {
		t.Errorf("apply exited with %d:\n%s", code, out)
	}
	h.reaches(t, "web", "10.20.0.20")
	h.agent.Run("apply", "-f", file, "--wait", "--allow", "restart", "--timeout", "5m")
	h.reaches(t, "web", "10.20.0.30")
	if code, out := h.agent.Exit("plan", "-f", file); code != 0 {
		t.Errorf("afterwards plan exited with %d:\n%s", code, out)
	}
}

// gone deletes all that was declared and looks for what is left of it.
func (h host) gone(t *testing.T) {
	t.Helper()
	h.agent.Run("delete", "declaration/site", "--wait", "--timeout", "3m")
	if names, files := h.kvm.Names(), h.kvm.Files(); len(names)+len(files) != 0 {
		t.Errorf("left: domains %v, files %v", names, files)
	}
	if names := h.lxd.Names(); len(names) != 0 {
		t.Errorf("left: instances %v", names)
	}
	for _, pattern := range []string{h.kvm.Dir + "/lib/qemu/nvram/*", h.agent.State() + "/dhcp/*", h.agent.State() + "/volumes/*"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	harness.Wait(t, "the network to go", time.Minute, func() error {
		for _, kind := range []string{"machines", "volumes", "networks", "declarations"} {
			if out, err := h.agent.Try("get", kind, "-o", "name"); err != nil || strings.TrimSpace(out) != "" {
				return fmt.Errorf("%s: %s, %v", kind, out, err)
			}
		}
		if _, err := os.Stat("/sys/class/net/br-lan"); err == nil {
			return fmt.Errorf("br-lan is there")
		}
		return nil
	})
	if loops := harness.Loops(t, h.agent.Dir); len(loops) > 0 {
		t.Errorf("left: %v", loops)
	}
	if taps, _ := filepath.Glob("/sys/class/net/*/tun_flags"); len(taps) > 0 {
		t.Errorf("left: %v", taps)
	}
}
