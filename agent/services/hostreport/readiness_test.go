package hostreport

import (
	"context"
	"encoding/json"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/initialisers"
)

// daemon is the initialiser of a type whose host lacks something, with the
// answer of Silent.
type daemon struct {
	initialisers.Initialiser
	why, message, mend string
}

func (daemon) Supported(context.Context) (bool, string)        { return true, "" }
func (d daemon) Satisfied(context.Context) (bool, string)      { return false, d.why }
func (d daemon) Silent(context.Context) (message, mend string) { return d.message, d.mend }

// The check of a hypervisor that does not answer is an error with its remedy,
// whatever the text of the difference says.
func TestReadinessOfASilentHypervisor(t *testing.T) {
	for name, c := range map[string]struct {
		d                     daemon
		result, message, mend string
	}{
		"silent":  {daemon{nil, "the daemon hangs; restart it", "LXD hangs", "restart it"}, "error", "LXD hangs", "restart it"},
		"lacking": {daemon{nil, "the mirror does not answer; LXD", "", ""}, "ok", "not installed yet; will be set up with the first lxd machine (the mirror does not answer; LXD)", ""},
	} {
		result, message, mend := readiness(t.Context(), spec.LXD, c.d, true)
		if result != c.result || message != c.message || mend != c.mend {
			t.Errorf("%s: %s, %q, %q", name, result, message, mend)
		}
	}
}

// absent is the initialiser of a type that the host cannot run.
type absent struct{ initialisers.Initialiser }

func (absent) Supported(context.Context) (bool, string) { return false, "no package" }

// A type that nobody uses and that this host cannot run is no error: the host
// is healthy without it.
func TestReadinessOfAnUnavailableType(t *testing.T) {
	machine, err := json.Marshal(spec.MachineRecord{Machine: spec.Machine{Type: spec.Incus}})
	if err != nil {
		t.Fatal(err)
	}
	status := func(supported bool) state.Object {
		return state.Object{ID: state.ID{Kind: spec.KindContainerType, Name: "incus"}, Status: spec.Encode(spec.TypeStatus{Supported: &supported})}
	}
	const refused = "this host cannot run incus machines: no package"
	for name, c := range map[string]struct {
		objects         []state.Object
		result, message string
	}{
		"unused":   {nil, "ok", "not available here: no package"},
		"recorded": {[]state.Object{{ID: state.ID{Kind: spec.KindMachine, Name: "web"}, Spec: machine}}, "error", refused},
		"ready":    {[]state.Object{status(true)}, "error", refused},
		"refused":  {[]state.Object{status(false)}, "ok", "not available here: no package"},
	} {
		result, message, _ := readiness(t.Context(), spec.Incus, absent{}, usedTypes(c.objects)[spec.Incus])
		if result != c.result || message != c.message {
			t.Errorf("%s: %s, %q", name, result, message)
		}
	}
}

// advised is a type that is set up, and that hostler advises against.
type advised struct{ initialisers.Initialiser }

func (advised) Supported(context.Context) (bool, string) { return true, "" }
func (advised) Satisfied(context.Context) (bool, string) { return true, "" }
func (advised) Advice() string                           { return "prefer another" }

func TestReadinessWithAdvice(t *testing.T) {
	if result, message, _ := readiness(t.Context(), spec.LXD, advised{}, true); result != "ok" || message != "is set up; prefer another" {
		t.Errorf("%s, %q", result, message)
	}
}
