package networkprovisioner

import (
	"slices"
	"strings"
	"testing"
)

// N12: a server is told of the bridge that is there, in the very pass in which
// it was made or made again, and is not taken for one that had ended.
func TestTheServerOfABridgeMadeAgain(t *testing.T) {
	r := newRig(t, Observed{})
	r.declare("lan", lan())
	uid := func() string {
		for uid := range r.servers {
			return uid
		}
		return ""
	}
	number := func() int {
		l, _ := r.o.Host.Link("br-lan")
		return l.Index
	}
	r.pass()
	first := number()
	if first == 0 || r.bound[uid()] != first {
		t.Fatalf("the bridge is %d, its server was told %d", first, r.bound[uid()])
	}
	r.pass()
	r.o.Host.Links, r.o.Host.Addresses, r.o.Host.Routes = nil, nil, nil
	r.pass()
	if now := number(); now == first || r.bound[uid()] != now {
		t.Errorf("the bridge was %d and is %d, its server was told %d", first, now, r.bound[uid()])
	}
	if told := r.events("lan"); slices.Contains(told, "dnsmasq had ended and is started again") || !strings.HasPrefix(told[len(told)-1], "make bridge br-lan; ") {
		t.Errorf("told %q", told)
	}
}
