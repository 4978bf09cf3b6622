//go:build integration

package lxc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/lxc"
	"hostler/internal/fault"
)

// Interfaces come, change and go while a guest runs.
func TestLiveInterfaces(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "nics")
	pid := w.start(t, m)
	other := brokertest.Bridge(t)
	m.NICs = []containerbroker.NIC{
		{Name: "eth0", Bridge: w.bridge, MAC: "00:16:3e:00:77:01"},
		{Name: "lan", Bridge: other, MAC: "00:16:3e:00:77:02", MTU: 1300, Addresses: []string{"198.18.0.9/16"}, Static: true},
	}
	w.apply(t, m)
	w.says(t, m.Name, "cat /sys/class/net/eth0/address /sys/class/net/lan/address /sys/class/net/lan/mtu", "00:16:3e:00:77:01\n00:16:3e:00:77:02\n1300")
	if master := host(t, "readlink", "/sys/class/net/hn00163e007702/master"); filepath.Base(master) != other {
		t.Errorf("its host's end is on %s", master)
	}
	if port := find(t, w.d, m.Name).Ports["lan"]; port.Device != "hn00163e007702" || port.Bridge != other {
		t.Errorf("its port is %+v", port)
	}
	number, _ := w.inside(t, m.Name, "ip addr add 198.18.0.9/16 dev lan && cat /sys/class/net/lan/ifindex")
	m.NICs[1].Bridge = w.bridge
	w.apply(t, m)
	w.says(t, m.Name, "cat /sys/class/net/lan/ifindex; ip -4 -o addr show dev lan | grep -c 198.18.0.9", number+"\n1") // it is the same interface
	if master := host(t, "readlink", "/sys/class/net/hn00163e007702/master"); filepath.Base(master) != w.bridge {
		t.Errorf("after a move its host's end is on %s", master)
	}
	m.NICs = m.NICs[:1]
	w.apply(t, m)
	w.says(t, m.Name, "ls /sys/class/net", "eth0\nlo")
	if find(t, w.d, m.Name).PID != pid {
		t.Error("it was restarted")
	}
}

// Where machines without declared interfaces have none, one runs and is ready, and
// one that declares an interface later gets it while it runs.
func TestNoInterfaceUndeclared(t *testing.T) {
	w := newWorld(t)
	w.d = lxc.New(lxc.Options{Path: w.path, Namespace: "hostler", IDs: w.ids, Images: w.cache, AddressTimeout: time.Second})
	m := w.machine(t, "alone")
	pid := w.start(t, m)
	w.says(t, m.Name, "ls /sys/class/net", "lo")
	if ready, err := w.d.WaitReady(t.Context(), m, nil); err != nil {
		t.Errorf("%+v, %v", ready, err)
	}
	m.NICs = []containerbroker.NIC{{Name: "lan", Bridge: w.bridge, MAC: "00:16:3e:00:77:0a"}}
	w.apply(t, m)
	w.says(t, m.Name, "ls /sys/class/net", "lan\nlo")
	m.NICs = nil
	w.apply(t, m)
	w.says(t, m.Name, "ls /sys/class/net", "lo")
	if find(t, w.d, m.Name).PID != pid {
		t.Error("it was restarted")
	}
}

// An instance in the host's network namespace cannot be adopted. If it is declared
// all the same, its update leaves the host's devices.
func TestInstanceInTheHostsNetwork(t *testing.T) {
	w := newWorld(t)
	config := w.makeForeign(t, "shares")
	text := regexp.MustCompile("(?m)^lxc.net.*\n").ReplaceAllString(read(t, config), "")
	must(t, os.WriteFile(config, []byte(text+"lxc.net.0.type = none\nlxc.init.cmd = /bin/sleep 600\n"), 0o600))
	m := w.machine(t, "shares")
	must(t, w.d.Stamp(t.Context(), m.Name, nil, m.Stamp))
	must(t, w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	if odd := find(t, w.d, m.Name).Odd; !strings.Contains(odd, "network") {
		t.Errorf("it is odd: %q", odd)
	}
	const device = "hltest-none0"
	host(t, "ip", "link", "add", device, "type", "bridge")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "delete", device).Run() })
	m.Privileged, m.RootDisk, m.ImageID = true, 0, ""
	m.NICs = []containerbroker.NIC{{Name: device, Bridge: w.bridge, MAC: "00:16:3e:00:77:0b"}}
	err := w.d.Update(t.Context(), m, w.d.Diff(m, find(t, w.d, m.Name)))
	if !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("an update: %v", err)
	}
	if kind := host(t, "ip", "-d", "link", "show", device); !strings.Contains(kind, "forward_delay") {
		t.Errorf("the host's device is now %s", kind)
	}
}

// An interface that cannot move to another bridge stays connected where it is.
func TestAnInterfaceThatCannotMoveStaysConnected(t *testing.T) {
	w := newWorld(t)
	m := w.machine(t, "unmoved")
	bridge := brokertest.Bridge(t)
	m.NICs = []containerbroker.NIC{{Name: "lan", Bridge: bridge, MAC: "00:16:3e:00:77:12"}}
	w.start(t, m)
	m.NICs[0].Bridge = "br-missing"
	if err := w.d.Update(t.Context(), m, w.d.Diff(m, find(t, w.d, m.Name))); err == nil {
		t.Error("it moved to a bridge that is not there")
	}
	w.says(t, m.Name, "cat /sys/class/net/lan/carrier", "1")
}
