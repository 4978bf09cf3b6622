package networkprovisioner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/hostnet/ipam"
)

// at makes the plan at a later time and stores it.
func at(t *testing.T, d *Desired, o Observed, now time.Time) Plan {
	t.Helper()
	p := Make(*d, o, Policy{Namespace: "ns", Now: now})
	for i, n := range d.Networks {
		d.Networks[i].Status = assess(n, p.Networks[i], reconcile.Failure{}, now)
	}
	return p
}

// holds returns the keys of the network's status entries that have the address.
func holds(d Desired, address string) (keys []string) {
	for k, g := range d.Networks[0].Status.Guests {
		if slices.Contains(g.Addresses, address) {
			keys = append(keys, k)
		}
	}
	return keys
}

// A6 P28: while an instance outlives its machine, its address goes to no other
// machine: not after the quarantine, not to a machine of the same name, not to
// a machine that declares it. Once the instance is gone, it does.
func TestA6AddressOfALeftInstanceIsNotReassigned(t *testing.T) {
	const address = "10.20.0.2/24"
	mac := guestMAC("m-web", "eth0")
	there, gone := Observed{Using: map[string]bool{mac: true}}, Observed{Using: map[string]bool{mac: false}}
	d := Desired{Networks: []Network{network("lan", lan())}, Machines: []Machine{guest("web", on("lan", ""))}}
	p := at(t, &d, Observed{}, t0)
	equalText(t, "web", had(p, "web/eth0"), address)
	d.Machines = nil
	now := t0.Add(time.Minute)
	at(t, &d, Observed{}, now)

	for range 3 { // each observation restarts its quarantine
		now = now.Add(ipam.Quarantine)
		at(t, &d, there, now)
		now = now.Add(ipam.Quarantine / 2)
		at(t, &d, Observed{}, now) // without an observation
		if keys := holds(d, address); len(keys) != 1 || !strings.HasPrefix(keys[0], "web/eth0#") {
			t.Fatalf("%s is held by %v", address, keys)
		}
	}
	again := guest("web", on("lan", ""))
	again.UID = "m-web-again"
	d.Machines = []Machine{again, guest("named", on("lan", address))}
	for _, o := range []Observed{there, {}} {
		p = at(t, &d, o, now)
		if got := had(p, "web/eth0"); got == address || got == "" {
			t.Errorf("the machine of the same name has %q", got)
		}
		if got := had(p, "named/eth0"); got != "" || !strings.Contains(strings.Join(p.Networks[0].Notes, " "), "the machine web (removed, its instance is still there) has it") {
			t.Errorf("the machine that names it has %q: %q", got, p.Networks[0].Notes)
		}
	}
	if err := Refuse(d, Observed{}, policy(), map[string]bool{"machine/named": true}); err == nil || !strings.Contains(err.Error(), "the instance of the removed machine web has it") {
		t.Errorf("refused with %v", err)
	}
	p = at(t, &d, gone, now.Add(ipam.Quarantine))
	equalText(t, "the machine that names it, once the instance is gone", had(p, "named/eth0"), address)
	if keys := holds(d, address); !slices.Equal(keys, []string{"named/eth0"}) {
		t.Errorf("%s is held by %v", address, keys)
	}
}

// The hypervisors are asked only when an address is about to be reassigned; if
// they do not answer, it is not reassigned.
func TestHypervisorsAreAskedBeforeAnAddressIsReassigned(t *testing.T) {
	d := Desired{Networks: []Network{network("lan", lan())}, Machines: []Machine{guest("web", on("lan", ""))}}
	mac := guestMAC("m-web", "eth0")
	at(t, &d, Observed{}, t0)
	web := d.Machines
	d.Machines = nil
	at(t, &d, Observed{}, t0)
	asked, answer := 0, error(nil)
	eyes := Eyes{Instances: func(context.Context) (map[string]bool, error) { asked++; return map[string]bool{mac: true}, answer }}
	look := func(after time.Duration, d Desired) map[string]bool {
		asked = 0
		eyes.Now = func() time.Time { return t0.Add(after) }
		d.index = indexOf(d)
		return eyes.using(t.Context(), d)
	}
	if got := look(time.Minute, d); asked != 0 || got != nil {
		t.Errorf("while it rests: %v, asked %d times", got, asked)
	}
	if got := look(ipam.Quarantine, d); asked != 1 || !got[mac] {
		t.Errorf("after its rest: %v, asked %d times", got, asked)
	}
	d.Machines = web // adopted under its uid: the address is that machine's own
	if got := look(time.Minute, d); asked != 0 || got != nil {
		t.Errorf("with its machine: %v, asked %d times", got, asked)
	}
	d.Machines = []Machine{{Name: "web", UID: "another", NICs: map[string]spec.NIC{"eth0": {Network: "lan"}}}}
	answer = errors.New("LXD does not answer")
	if got := look(time.Minute, d); asked != 1 || !got[mac] {
		t.Errorf("with another machine of its name, and no answer: %v, asked %d times", got, asked)
	}
}
