package provisioner

import (
	"testing"

	"hostler/agent/spec"
	"hostler/containerbroker"
)

// N12: the networks worker finds an instance's ports in the machine's status.
func TestStatusHoldsTheInstancesPorts(t *testing.T) {
	d := machine("web")
	i := instance("web")
	i.Ports = map[string]containerbroker.Port{"eth0": {Device: "veth1", Bridge: "br-lan"}}
	s := assess(&d, &i, nil, t0)
	if len(s.Ports) != 1 || s.Ports["eth0"] != (spec.Port{Device: "veth1", Bridge: "br-lan"}) {
		t.Errorf("told %v", s.Ports)
	}
	d.Status = s
	i.Ports = nil
	if s := assess(&d, &i, nil, t0); s.Ports != nil {
		t.Errorf("stopped it is told with %v", s.Ports)
	}
}
