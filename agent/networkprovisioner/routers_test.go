package networkprovisioner

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/hostnet"
	"hostler/internal/paths"
	"hostler/sysctl"
)

// kernel is a rig whose kernel parameters are files.
type kernel struct {
	*rig
	p paths.Paths
}

func newKernel(t *testing.T) *kernel {
	t.Helper()
	k := &kernel{rig: newRig(t, Observed{})}
	k.p = paths.New(k.worker.Eyes.Root, "", "", "")
	if err := os.MkdirAll(k.p.StateDir, 0o755); err != nil {
		t.Fatal(err)
	}
	k.worker.Parameters = sysctl.New(k.p, slog.New(slog.DiscardHandler))
	k.set(forwarding4, "0")
	k.set(forwarding6, "0")
	return k
}

func (k *kernel) set(name, value string) {
	k.t.Helper()
	file := filepath.Join(k.p.ProcSys(), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kernel) want(when, name, value string) {
	k.t.Helper()
	data, err := os.ReadFile(filepath.Join(k.p.ProcSys(), name))
	if got := strings.TrimSpace(string(data)); err != nil || got != value {
		k.t.Errorf("%s: %s is %q, %v; want %q", when, name, got, err, value)
	}
}

// uplink adds a NIC with an advertised default route, and sets its accept_ra.
func (k *kernel) uplink(nic, accept string) {
	k.set(acceptRA(nic), accept)
	k.o.Host.Links = append(k.o.Host.Links, hostnet.Link{Name: nic, Up: true, MTU: 1500})
	k.o.Host.Routes = append(k.o.Host.Routes, hostnet.Route{
		Link: nic, Destination: netip.MustParsePrefix("::/0"), Gateway: netip.MustParseAddr("fe80::1"), Table: 254, Protocol: protocolRA,
	})
}

// flap removes all advertised routes.
func (k *kernel) flap() {
	k.o.Host.Routes = slices.DeleteFunc(k.o.Host.Routes, func(r hostnet.Route) bool { return r.Protocol == protocolRA })
}

// pass runs a pass and creates the parameters of br-lan with the bridge.
func (k *kernel) pass() {
	k.t.Helper()
	k.set(acceptRA("br-lan"), "0")
	k.rig.pass()
}

// F17: a host that forwards IPv6 accepts router advertisements even while it
// has no default route from them, e.g. after a link flap or a boot. Links whose
// advertisements user space handles, with accept_ra 0, are left alone.
func TestAcceptRAHoldsWithoutADefaultRoute(t *testing.T) {
	k := newKernel(t)
	k.uplink("eth0", "1")
	k.uplink("eth1", "0") // as systemd-networkd sets it
	k.set(acceptRA("eth2"), "1")
	k.declare("lan", spec.Network{Bridge: "br-lan", Addresses: []string{"fd00:20::1/64"}, Forwarding: true})
	k.pass()
	k.want("with a route", acceptRA("eth0"), "2")
	k.want("with a route", forwarding6, "1")
	k.want("in user space", acceptRA("eth1"), "0")
	k.want("no route ever", acceptRA("eth2"), "1")

	k.flap()
	for range 2 {
		k.pass()
		k.want("after a flap", acceptRA("eth0"), "2")
	}
	// The next agent after a reboot, with or without systemd-sysctl having run.
	for _, value := range []string{"2", "1"} {
		k.worker.last = nil
		k.set(acceptRA("eth0"), value)
		k.pass()
		k.want("at the start", acceptRA("eth0"), "2")
	}
	// If user space handles the advertisements since, the parameter is no longer
	// ours.
	k.set(acceptRA("eth0"), "0")
	k.pass()
	k.want("in user space since", acceptRA("eth0"), "0")
	k.set(acceptRA("eth0"), "1")
	k.pass()
	k.want("not ours", acceptRA("eth0"), "1")
}

// With the last network, accept_ra is set back. A link that is gone is
// forgotten, and a bridge that must ignore advertisements is no uplink.
func TestAcceptRAIsRestoredWithTheLastNetwork(t *testing.T) {
	k := newKernel(t)
	k.uplink("eth0", "1")
	k.uplink("usb0", "1")
	k.uplink("br-lan", "1") // a guest's advertisement arrived first
	k.o.Host.Links = slices.DeleteFunc(k.o.Host.Links, func(l hostnet.Link) bool { return l.Name == "br-lan" })
	k.declare("lan", spec.Network{Bridge: "br-lan", Addresses: []string{"fd00:20::1/64"}, Forwarding: true})
	k.rig.pass()
	k.want("with a route", acceptRA("usb0"), "2")
	k.want("on our bridge", acceptRA("br-lan"), "0")
	k.flap()
	if err := os.RemoveAll(filepath.Dir(filepath.Join(k.p.ProcSys(), acceptRA("usb0")))); err != nil {
		t.Fatal(err)
	}
	k.now = k.now.Add(time.Hour)
	k.rig.pass()
	k.want("after a flap", acceptRA("eth0"), "2")
	data, err := os.ReadFile(k.p.SysctlDropIn())
	if err != nil || strings.Contains(string(data), "usb0") {
		t.Errorf("the drop-in holds %s, %v", data, err)
	}
	if s, _ := k.status("lan"); s.State != stateReady {
		t.Errorf("%+v", s)
	}
	k.write(state.Write{ID: state.ID{Kind: spec.KindNetwork, Name: "lan"}, Revision: state.AnyRevision, Life: state.Dying})
	k.pass()
	k.want("without networks", acceptRA("eth0"), "1")
	k.want("without networks", forwarding6, "0")
}
