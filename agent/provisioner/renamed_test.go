package provisioner

import (
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/containerbroker"
)

// A machine with the former name of a renamed machine gets neither that machine's
// instance nor the advice to take it over. A copy of an instance can be taken over.
func TestTheFormerNameOfARenamedMachine(t *testing.T) {
	renamed := machine("web", provisioned, func(d *Desired) {
		d.Name, d.Record.InstanceName = "www", "web"
	})
	web := machine("web", func(d *Desired) { d.UID = "uid-new" })
	for _, step := range []struct {
		desired []Desired
		other   containerbroker.Instance
		want    string
	}{
		{[]Desired{web, renamed}, instance("web"), "is that of machine/www, which was renamed: give this machine another name"},
		{[]Desired{machine("web", provisioned), machine("db")}, copied("db"), "hostler adopt lxd/db"},
	} {
		observed := Observed{Complete: true, Instances: []containerbroker.Instance{instance("web"), step.other}}
		held := ""
		for _, s := range Plan(step.desired, observed, Policy{Type: spec.LXD, Namespace: ns, Now: t0.Add(time.Hour), Diff: noDiff}) {
			held += s.Held
		}
		if !strings.Contains(held, step.want) || strings.Contains(held, "adopt") != strings.Contains(step.want, "adopt") {
			t.Errorf("got %q, want %q", held, step.want)
		}
	}
}
