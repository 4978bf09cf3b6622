package hostreport

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"hostler/agent/containersetup"
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

// The check of a type that is not set up depends on its use, its status and the
// answer of its hypervisor.
func TestReadinessOfATypeThatIsNotSetUp(t *testing.T) {
	lacking := daemon{nil, "the mirror does not answer; LXD", "", ""}
	silent := daemon{nil, "the daemon hangs; restart it", "LXD hangs", "restart it"}
	next := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	failed := spec.TypeStatus{State: containersetup.StateError, Message: "cannot install lxd", Attempts: spec.Attempts{NextRetry: &next}}
	const unused = "not installed yet; will be set up with the first lxd machine (the mirror does not answer; LXD)"
	const retry = "mend the named cause; `hostler retry type/lxd` tries at once"
	for name, c := range map[string]struct {
		d                     daemon
		u                     use
		result, message, mend string
	}{
		"silent":                 {silent, use{machines: true}, "error", "LXD hangs", "restart it"},
		"silent after a failure": {silent, use{machines: true, status: failed}, "error", "LXD hangs", "restart it"},
		"silent and unused":      {silent, use{}, "error", "LXD hangs", "restart it"},
		"starting":               {silent, use{machines: true, status: spec.TypeStatus{State: containersetup.StateInitialising, Message: "starting LXD"}}, "warning", "is being set up: starting LXD", ""},
		"waiting":                {lacking, use{machines: true, status: spec.TypeStatus{State: containersetup.StateWaiting, Message: "waiting for the host lock"}}, "warning", "is being set up: waiting for the host lock", ""},
		"before the first pass":  {lacking, use{machines: true}, "warning", "is being set up: the mirror does not answer; LXD", ""},
		"failed":                 {lacking, use{machines: true, status: failed}, "error", "cannot install lxd; the next try is at 2001-02-03T04:05:06Z", retry},
		"lacking a part":         {lacking, use{machines: true, ready: true, status: spec.TypeStatus{State: containersetup.StateReady}}, "warning", "was set up, and now lacks a part: the mirror does not answer; LXD", "set it up again: systemctl restart hostlerd"},
		"unused":                 {lacking, use{}, "ok", unused, ""},
		"failed, now unused":     {lacking, use{status: failed}, "ok", unused, ""},
		"removed after its use":  {lacking, use{ready: true, status: spec.TypeStatus{State: containersetup.StateReady}}, "ok", unused, ""},
	} {
		result, message, mend := readiness(t.Context(), spec.LXD, c.d, c.u)
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
		result, message, _ := readiness(t.Context(), spec.Incus, absent{}, uses(c.objects)[spec.Incus])
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
	if result, message, _ := readiness(t.Context(), spec.LXD, advised{}, use{machines: true}); result != "ok" || message != "is set up; prefer another" {
		t.Errorf("%s, %q", result, message)
	}
}
