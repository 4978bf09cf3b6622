//go:build integration

package lxd_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/lxd"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/fault"
)

func host(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

func folder(t *testing.T) string { return t.TempDir() }

func deviceAndFile(t *testing.T, readOnly bool) (name, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "backing")
	must(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	if readOnly {
		return brokertest.Loop(t, file, "--read-only"), file
	}
	return brokertest.Loop(t, file), file
}

// inside runs a shell command in an instance. It returns the command's output
// and whether it succeeded.
func inside(t *testing.T, d *lxd.Driver, name, command string) (string, bool) {
	t.Helper()
	var out bytes.Buffer
	code, err := d.Exec(t.Context(), name, containerbroker.ExecRequest{
		Command: []string{"/bin/sh", "-c", "PATH=/bin:/sbin; exec 2>&1; " + command}, Stdout: &out,
	})
	must(t, err)
	return out.String(), code == 0
}

func works(t *testing.T, d *lxd.Driver, name, command string) string {
	t.Helper()
	out, ok := inside(t, d, name, command)
	if !ok {
		t.Errorf("%s: %s", command, out)
	}
	return out
}

func fails(t *testing.T, d *lxd.Driver, name, command string) {
	t.Helper()
	if out, ok := inside(t, d, name, command); ok {
		t.Errorf("%s succeeded: %s", command, out)
	}
}

// L4, N2, N18: the guest's view of its interfaces, and the limits on them.
func TestInterfacesInside(t *testing.T) {
	t.Parallel()
	server := lxdtest.StartWith(t, lxdtest.Options{Driver: "dir"})
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler", AddressTimeout: time.Second})
	br := brokertest.Bridge(t)
	octets := make([]byte, 2)
	_, _ = rand.Read(octets)
	four := fmt.Sprintf("198.19.%d.", octets[0])
	six := fmt.Sprintf("fd00:0:0:%x%02x::", 1+octets[1]%100, octets[0])
	host(t, "ip", "address", "add", four+"1/24", "dev", br)
	host(t, "ip", "address", "add", six+"1/64", "dev", br, "nodad")
	// The default profile gives an interface of another name as well.
	var profile api.Profile
	must(t, server.API(http.MethodGet, "/1.0/profiles/default", nil, &profile))
	put := profile.Writable()
	put.Devices["wan0"] = map[string]string{"type": "nic", "nictype": "bridged", "parent": br, "name": "wan0"}
	must(t, server.API(http.MethodPut, "/1.0/profiles/default", put, nil))

	m := machine("wired", server.TinyFingerprint, "token")
	m.ExpectAddress = false // a declared interface is enough to expect an address
	m.NICs = []containerbroker.NIC{{
		Name: "eth0", Bridge: br, MAC: "00:16:3E:aa:00:01", MTU: 1400, Static: true,
		Addresses: []string{four + "10/24", six + "10/64"}, Gateways: []string{four + "1", six + "1"}, Nameservers: []string{four + "1"},
	}}
	must(t, d.Create(t.Context(), m, nil))
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	if links := strings.Fields(works(t, d, m.Name, "ls /sys/class/net")); !slices.Equal(links, []string{"eth0", "lo"}) {
		t.Errorf("it has interfaces %v", links)
	}
	link := works(t, d, m.Name, "ip link show eth0")
	if !strings.Contains(link, "mtu 1400") || !strings.Contains(link, "00:16:3e:aa:00:01") {
		t.Errorf("eth0: %s", link)
	}
	// The host's firewall recognises the guest's packets by the name of the
	// host's end.
	if port := host(t, "ip", "link", "show", "hn00163eaa0001"); !strings.Contains(port, "master "+br) {
		t.Errorf("the host's end: %s", port)
	}
	// This image has no cloud-init, so nothing sets its address.
	_, err := d.WaitReady(t.Context(), m, nil)
	if fault.KindOf(err) != fault.Transient || !strings.Contains(err.Error(), "eth0 has not got address "+four+"10 or "+six+"10") {
		t.Errorf("without its address: %v", err)
	}
	works(t, d, m.Name, fmt.Sprintf("ip link set eth0 up; ip addr add %s10/24 dev eth0; ip addr add %s10/64 dev eth0", four, six))
	ready, err := d.WaitReady(t.Context(), m, nil)
	must(t, err)
	if !slices.Contains(ready.Addresses, four+"10") {
		t.Errorf("ready with %v", ready.Addresses)
	}
	// The guest reaches others from its given addresses and from no other.
	ping4, ping6 := "ping -c 1 -W 2 "+four+"1", "ping -6 -c 1 -W 2 "+six+"1"
	works(t, d, m.Name, ping4)
	works(t, d, m.Name, "until "+ping6+"; do n=$((n+1)); [ $n -lt 10 ] || exit 1; done") // its address may be tentative
	works(t, d, m.Name, fmt.Sprintf("ip addr add %s66/24 dev eth0", four))
	fails(t, d, m.Name, ping4+" -I "+four+"66")
	works(t, d, m.Name, "ip link set eth0 down; ip link set eth0 address 00:16:3e:aa:00:66; ip link set eth0 up")
	fails(t, d, m.Name, ping4)

	config := get(t, server, m.Name)
	if text := config.Config["cloud-init.network-config"]; !strings.Contains(text, `"gateway4": "`+four+`1"`) {
		t.Errorf("cloud-init is told: %s", text)
	}
	if config.Devices["wan0"]["type"] != "none" {
		t.Errorf("the profile's interface is not masked: %v", config.Devices)
	}
	// A masked interface appears once it is declared, and is masked again when
	// its declaration goes. Without any declared interface, the profile's
	// interfaces are back.
	two := m
	two.NICs = append(slices.Clone(m.NICs), containerbroker.NIC{Name: "wan0", Bridge: br, MAC: "00:16:3e:aa:00:02"})
	none := m
	none.NICs = nil
	for _, wants := range []struct {
		m     containerbroker.Machine
		links []string
	}{{two, []string{"eth0", "lo", "wan0"}}, {m, []string{"eth0", "lo"}}, {none, []string{"eth0", "lo", "wan0"}}} {
		update(t, d, wants.m)
		if links := strings.Fields(works(t, d, m.Name, "ls /sys/class/net")); !slices.Equal(links, wants.links) {
			t.Errorf("with %d declared it has interfaces %v", len(wants.m.NICs), links)
		}
	}
	if own := get(t, server, m.Name).Devices; len(own) != 0 {
		t.Errorf("left on the instance: %v", own)
	}
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
}

// update updates an instance to m and checks that no difference is left.
func update(t *testing.T, d *lxd.Driver, m containerbroker.Machine) {
	t.Helper()
	must(t, d.Update(t.Context(), m, differences(t, d, m)))
	if changes := differences(t, d, m); len(changes) != 0 {
		t.Fatalf("it still differs: %+v", changes)
	}
}

func differences(t *testing.T, d *lxd.Driver, m containerbroker.Machine) []containerbroker.Change {
	t.Helper()
	all, err := d.List(t.Context(), true)
	must(t, err)
	return d.Diff(m, all[slices.IndexFunc(all, func(i containerbroker.Instance) bool { return i.Name == m.Name })])
}

// The guest sees folders and block devices, and they are plugged and unplugged
// while it runs.
func TestDisksInside(t *testing.T) {
	t.Parallel()
	server := lxdtest.StartWith(t, lxdtest.Options{Driver: "dir"})
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler"})
	m := machine("stored", server.TinyFingerprint, "token")
	www := t.TempDir()
	must(t, os.Chown(www, 1_000_000, 1_000_000))
	loop, file := deviceAndFile(t, false)
	fixed, _ := deviceAndFile(t, true)
	m.Disks = []containerbroker.Disk{
		{Name: "fs-www", Source: www, Path: "/srv/www"},
		{Name: "vol-data", Source: loop, Device: "/dev/hostler-data"},
		{Name: "vol-fixed", Source: fixed, Device: "/dev/hostler-fixed", ReadOnly: true},
	}
	must(t, d.Create(t.Context(), m, nil))
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	works(t, d, m.Name, "grep ' /srv/www ' /proc/self/mountinfo")
	works(t, d, m.Name, "echo from inside | dd of=/dev/hostler-data")
	host(t, "sync", file)
	if content, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(content), "from inside\n") {
		t.Errorf("the volume holds %q, %v", content[:min(len(content), 20)], err)
	}
	works(t, d, m.Name, "dd if=/dev/hostler-fixed of=/dev/null bs=4096 count=1")
	fails(t, d, m.Name, "echo x | dd of=/dev/hostler-fixed")

	m.Disks[0].ReadOnly, m.Disks[0].Path = true, "/srv/pages"
	update(t, d, m)
	fails(t, d, m.Name, "grep ' /srv/www ' /proc/self/mountinfo")
	works(t, d, m.Name, "grep ' /srv/pages ro' /proc/self/mountinfo")

	// Devices and keys that the administrator added stay.
	added := get(t, server, m.Name)
	put := added.Writable()
	put.Devices = maps.Clone(put.Devices)
	put.Devices["theirs"] = map[string]string{"type": "disk", "source": t.TempDir(), "path": "/theirs"}
	put.Devices["fs-www"]["limits.read"] = "100MB"
	must(t, server.API(http.MethodPut, "/1.0/instances/"+m.Name, put, nil))
	m.Disks[0].ReadOnly = false
	update(t, d, m)
	if now := get(t, server, m.Name).Devices; now["theirs"] == nil || now["fs-www"]["limits.read"] != "100MB" {
		t.Errorf("a person's settings are gone: %v", now)
	}
	m.Disks = nil
	update(t, d, m)
	fails(t, d, m.Name, "ls /dev/hostler-data")
	fails(t, d, m.Name, "grep ' /srv/pages ' /proc/self/mountinfo")
	works(t, d, m.Name, "grep ' /theirs ' /proc/self/mountinfo")
	// A missing source is refused, and the whole update is dropped.
	m.Memory, m.Disks = 200<<20, []containerbroker.Disk{{Name: "fs-gone", Source: filepath.Join(www, "gone"), Path: "/srv/gone"}}
	err := d.Update(t.Context(), m, []containerbroker.Change{{Field: "memory"}, {Field: "disk fs-gone"}})
	if err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a folder that is not there: %v", err)
	}
	if now := get(t, server, m.Name); now.Devices["fs-gone"] != nil || now.Config["limits.memory"] != "" {
		t.Errorf("half of the update was done: %v %v", now.Config, now.Devices)
	}
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
}
