package networkprovisioner

import (
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/internal/fault"
)

func plain(bridge, address string) spec.Network {
	return spec.Network{Bridge: bridge, Addresses: []string{address}}
}

// What is missing for DHCP is the trouble of networks with DHCP: the others are
// made, and kept, and installing is tried again only when it is due.
func TestMissingProgramsOfDHCP(t *testing.T) {
	r := newRig(t, Observed{})
	r.declare("plain", plain("br-plain", "10.20.0.1/24"))
	r.pass()
	with := plain("br-with", "10.21.0.1/24")
	with.DHCP = true
	r.declare("with", with)
	r.missing.dhcp = true
	next := r.pass()
	if s, _ := r.status("with"); s.State != stateError || !strings.Contains(s.Message, "no mirror answers") || r.installs != 1 || !next.After(r.now) {
		t.Errorf("%+v after %d installs, next at %v", s, r.installs, next)
	}
	if _, there := r.o.Host.Link("br-with"); !there {
		t.Error("without DHCP not even the bridge is made")
	}
	r.o.Host.Links, r.o.Host.Addresses, r.o.Host.Routes = nil, nil, nil // what somebody has taken away is put back
	r.pass()
	if s, _ := r.status("plain"); s.State != stateReady || len(r.o.Host.AddressesOf("br-plain")) != 1 || len(r.rules.Networks) != 2 {
		t.Errorf("%+v %+v %+v", s, r.o.Host, r.rules.Networks)
	}
	if r.installs != 1 {
		t.Errorf("%d installs at once", r.installs)
	}
	r.now, r.missing.dhcp = next.Add(time.Second), false
	r.pass()
	if s, _ := r.status("with"); s.State != stateReady || r.o.Host.AddressesOf("br-with") == nil {
		t.Errorf("%+v", s)
	}
	// A server that runs needs nothing installed.
	r.missing.dhcp = true
	installs := r.installs
	r.pass()
	if s, _ := r.status("with"); s.State != stateReady || r.installs != installs {
		t.Errorf("%+v, %d installs", s, r.installs-installs)
	}
	// What all need is the trouble of all.
	r.missing.all = true
	r.pass()
	if s, _ := r.status("plain"); s.State != stateError {
		t.Errorf("%+v", s)
	}
}

// A network whose steps fail holds no other up, and its steps are not tried
// again in the same pass.
func TestOneNetworkFails(t *testing.T) {
	r := newRig(t, Observed{})
	r.declare("bad", plain("br-bad", "10.20.0.1/24"))
	r.declare("good", plain("br-good", "10.21.0.1/24"))
	r.fails["br-bad"] = fault.New(fault.Transient, "cannot do that")
	r.pass()
	if s, _ := r.status("bad"); s.State != stateError || s.Attempts.Count != 1 || !strings.Contains(s.Message, "cannot do that") {
		t.Errorf("%+v", s)
	}
	if s, _ := r.status("good"); s.State != stateReady {
		t.Errorf("%+v", s)
	}
	r.fails = nil
	r.now = r.now.Add(time.Minute)
	r.pass()
	if s, _ := r.status("bad"); s.State != stateReady || s.Attempts.Count != 0 {
		t.Errorf("%+v", s)
	}
}
