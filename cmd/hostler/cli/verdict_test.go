package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

// TestJudge covers asDeclared, failed and undecided machines.
func TestJudge(t *testing.T) {
	unready := running("web", "10.1.2.3")
	unready.Conditions = []spec.Condition{{Type: "Ready", Status: false}}
	stale := func(m client.Machine) client.Machine { m.Observed = false; return m }
	for _, c := range []struct {
		name string
		m    client.Machine
		runs bool
		want verdict
	}{
		{"runs and should", running("web", "10.1.2.3"), true, asDeclared},
		{"runs but should stop", running("web", "10.1.2.3"), false, undecided},
		{"runs, not ready yet", unready, true, undecided},
		{"runs, as an older generation", stale(running("web", "10.1.2.3")), true, undecided},
		{"stopped and should", machine("web", spec.MachineStopped, ""), false, asDeclared},
		{"stopped but should run", machine("web", spec.MachineStopped, ""), true, undecided},
		{"pending", machine("web", spec.MachinePending, ""), true, undecided},
		{"provisioning", machine("web", spec.MachineProvisioning, ""), true, undecided},
		{"unknown", machine("web", spec.MachineUnknown, ""), true, undecided},
		{"dying", machine("web", spec.MachineDying, ""), true, undecided},
		{"error that is retried", retried(machine("web", spec.MachineError, "no"), 1, time.Second), true, undecided},
		{"error that needs the operator", machine("web", spec.MachineError, "no"), true, failed},
		{"error of an older generation", stale(machine("web", spec.MachineError, "no")), true, undecided},
	} {
		if got := judge(c.m, c.runs); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

// An error from before the removal does not end the wait for the removal.
func TestJudgeOfRemovals(t *testing.T) {
	f := newFollower(&standIn{}, goals{gone: []reference{machineNamed("web")}}, silence{})
	stuck := machine("web", spec.MachineError, "cannot delete the instance")
	stuck.Life = "dying"
	fromBefore := stuck
	fromBefore.Observed = false
	for _, c := range []struct {
		m      client.Machine
		exists bool
		want   verdict
	}{{stuck, true, failed}, {fromBefore, true, undecided}, {client.Machine{}, false, asDeclared}} {
		if got, text := f.judgeMachine(t.Context(), c.m, c.exists, true); got != c.want {
			t.Errorf("%+v: %v (%s), want %v", c.m, got, text, c.want)
		}
	}
}

func TestPhase(t *testing.T) {
	for want, m := range map[string]client.Machine{
		"pending":                          machine("a", spec.MachinePending, ""),
		"running 10.1.2.3":                 running("a", "10.1.2.3"),
		"running":                          machine("a", spec.MachineRunning, ""),
		"fetching debian/12 43 %":          at(machine("a", spec.MachineProvisioning, "fetching debian/12"), 43),
		"downloading https://m/a%20b 43 %": at(machine("a", spec.MachineProvisioning, "downloading https://m/a%20b"), 43),
		"provisioning 7 %":                 at(machine("a", spec.MachineProvisioning, ""), 7),
		"error: cannot start: refused":     machine("a", spec.MachineError, "cannot start: refused"),
		notLooked:                          {Name: "a", Status: spec.MachineError, Message: "no image debain/12"},
		"waiting for cloud-init":           machine("a", spec.MachineProvisioning, "waiting for cloud-init"),
	} {
		if got := phase(m); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The hint for held steps names the impacts of their fields, each once; the
// texts are for users.
func TestHeldStepsNameWhatToAllow(t *testing.T) {
	steps := []client.Step{
		{Object: "machine/web", Held: "--allow restart", Allow: "restart"},
		{Object: "machine/db", Held: "needs consent", Allow: "recreate"},
		{Object: "machine/db", Held: "--allow restart", Allow: "restart"},
		{Object: "machine/old", Held: "it is used by machine/web; --allow destroy"},
	}
	for n, want := range map[int]string{1: "apply again with --allow restart", 4: "apply again with --allow recreate,restart"} {
		if f := explain(t.Context(), heldFailure(steps[:n])); f.mend != want {
			t.Errorf("%d steps: got %q, want %q", n, f.mend, want)
		}
	}
	if f := explain(t.Context(), heldFailure(steps[3:])); f.mend != "" || f.text != "1 step held back: machine/old" {
		t.Errorf("without an impact: %q, %q", f.text, f.mend)
	}
}

// A failing plan is not a lost agent: the wait shows the error, asks again, and
// ends after a successful answer.
func TestAWaitWhosePlanFails(t *testing.T) {
	var told []string
	asked := 0
	web := running("web", "10.1.2.3")
	check := func(context.Context) (map[string]string, error) {
		if asked++; asked == 1 {
			return nil, fault.New(fault.Transient, "cannot plan: cannot list LXD instances")
		}
		return nil, nil
	}
	f := newFollower(&standIn{machines: []client.Machine{web}, freeze: true}, goals{ready: []reference{machineNamed("web")}, check: check}, remarks{&told})
	if err := errors.Join(f.run(t.Context()), f.broken()); err != nil || asked < 2 {
		t.Fatalf("%v after %d plans", err, asked)
	}
	all := strings.Join(told, "\n")
	if strings.Contains(all, "lost the agent") || !strings.Contains(all, "cannot list LXD instances") {
		t.Errorf("told was:\n%s", all)
	}

	// The timeout's error names a check that keeps failing.
	f.goals.check = func(context.Context) (map[string]string, error) {
		return nil, fault.New(fault.Transient, "cannot plan: cannot list LXD instances")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if err := f.timedOut(time.Minute, 1); !strings.Contains(err.Error(), "1 machine not ready") || !strings.Contains(err.Error(), "cannot list LXD instances") {
		t.Error(err)
	}
}

// The work on a machine that is not followed, e.g. because its step is held, does
// not prolong the wait.
func TestAWaitIgnoresOtherMachines(t *testing.T) {
	check := func(context.Context) (map[string]string, error) {
		return map[string]string{"db": "about to be restarted"}, nil
	}
	f := newFollower(&standIn{machines: []client.Machine{running("web", "10.1.2.3")}, freeze: true}, goals{ready: []reference{machineNamed("web")}, check: check}, remarks{new([]string)})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := f.run(ctx); err != nil {
		t.Error(err)
	}
}

// remarks is a progress that stores its notes.
type remarks struct{ told *[]string }

func (r remarks) tick(context.Context) func() { return func() {} }
func (r remarks) end()                        {}
func (r remarks) note(text string)            { *r.told = append(*r.told, text) }
func (r remarks) update(lines []progressLine) {
	for _, l := range lines {
		*r.told = append(*r.told, l.text)
	}
}

// An error of storage or networks that needs the operator ends the wait,
// although the agent retries it from time to time. Other errors do not.
func TestVerdictOnStorageAndNetworks(t *testing.T) {
	failing := func(kind fault.Kind, attempts int, retry bool) other {
		g := other{Name: "www", Status: "error", Message: "no", Observed: true, Attempts: attempts, ErrorKind: kind}
		if retry {
			g.NextRetry = after(time.Minute)
		}
		return g
	}
	older := failing(fault.NeedsOperator, 6, true)
	older.Observed = false
	trying := failing(fault.Transient, 6, true)
	trying.Status = "creating"
	for _, c := range []struct {
		name string
		g    other
		want verdict
	}{
		{"needs the operator, retried in minutes", failing(fault.NeedsOperator, 6, true), failed},
		{"never tried again", failing(fault.Invalid, 1, false), failed},
		{"a conflict that may pass", failing(fault.Conflict, 1, true), undecided},
		{"a conflict that stays", failing(fault.Conflict, 2, true), failed},
		{"a missing device may come", failing(fault.NotFound, 3, true), undecided},
		{"an earlier declaration's error", older, undecided},
		{"retried", trying, undecided},
		{"as declared", other{Status: "attached", Observed: true}, asDeclared},
	} {
		if got := c.g.verdict(); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
	if got := older.phase(); got != notLooked {
		t.Errorf("an earlier declaration's error is shown: %q", got)
	}
}

// A timeout is printed as the user gave it, even if a part of it has passed.
func TestTimeoutIsPrintedAsGiven(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"10m": 10 * time.Minute, "1m10s": 70*time.Second - 2, "20ms": 20 * time.Millisecond, "1h": time.Hour,
	} {
		if got := duration(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}

// A failed network, volume or filesystem ends the wait for the machines: they
// may need it. An object that a followed machine still uses is waited for only
// after that machine.
func TestWhenAWaitEnds(t *testing.T) {
	const (
		made    = `{"name":"data","status":"attached","observed":true}`
		broken  = `{"name":"logs","status":"error","error-kind":"needs-operator","observed":true}`
		making  = `{"name":"data","status":"creating","observed":false}`
		inUse   = `{"name":"data","status":"pending","observed":false,"attachments":[{"machine":"web","status":"detaching"}]}`
		old     = `{"name":"data","status":"attached","observed":true,"life":"dying"}`
		kept    = `{"name":"data","status":"error","error-kind":"needs-operator","observed":true,"life":"dying"}`
		used    = `{"name":"data","status":"pending","observed":true,"life":"dying","attachments":[{"machine":"web","status":"detaching"}]}`
		present = `{"name":"data","status":"attached","observed":true,"life":"alive"}`
	)
	data, logs, web := reference{spec.KindVolume, "data"}, reference{spec.KindVolume, "logs"}, machineNamed("web")
	up, pending, down := running("web", "10.1.2.3"), machine("web", spec.MachinePending, ""), machine("web", spec.MachineError, "no")
	dying, stuck := machine("web", spec.MachineDying, ""), down
	dying.Life, stuck.Life = "dying", "dying"
	for name, c := range map[string]struct {
		goals   goals
		volumes string
		web     client.Machine
		goesOn  bool
	}{
		"all is ready":                             {goals{ready: []reference{data, web}}, made, up, false},
		"the machine is not":                       {goals{ready: []reference{data, web}}, made, pending, true},
		"a volume is not":                          {goals{ready: []reference{data, web}}, making, up, true},
		"a volume failed, the machine may need it": {goals{ready: []reference{data, logs, web}}, made + "," + broken, pending, false},
		"a volume failed, another is being made":   {goals{ready: []reference{data, logs, web}}, making + "," + broken, pending, true},
		"a volume failed, another is in use":       {goals{ready: []reference{data, logs, web}}, inUse + "," + broken, pending, false},
		"the machine failed, a volume is in use":   {goals{ready: []reference{data, web}}, inUse, down, false},
		"the machine is to go, the volume after":   {goals{gone: []reference{data, web}}, made, pending, true},
		"the volume is still to go":                {goals{gone: []reference{data}}, made, up, true},
		"the former volume is still there":         {goals{ready: []reference{data}, remade: []reference{data}}, old, up, true},
		"the former volume cannot be removed":      {goals{ready: []reference{data}, remade: []reference{data}}, kept, up, false},
		"the former volume waits for its machine":  {goals{ready: []reference{data, web}, remade: []reference{data, web}}, used, dying, true},
		"its machine cannot be removed":            {goals{ready: []reference{data, web}, remade: []reference{data, web}}, used, stuck, false},
		"a held volume is not waited for":          {goals{ready: []reference{web}, remade: []reference{data}}, old, up, false},
		"a held machine keeps the volume":          {goals{gone: []reference{data}, held: []string{"web"}}, used, up, false},
		"another machine keeps the volume":         {goals{gone: []reference{data}, held: []string{"db"}}, used, up, true},
		"the volume was made again":                {goals{ready: []reference{data}, remade: []reference{data}}, present, up, false},
	} {
		f := newFollower(&standIn{}, c.goals, silence{})
		rows, err := json.Marshal([]client.Machine{c.web})
		if err = errors.Join(err, f.take("machines", rows), f.take("volumes", []byte("["+c.volumes+"]"))); err != nil {
			t.Fatal(err)
		}
		if f.look(t.Context()); f.goesOn() != c.goesOn {
			t.Errorf("%s: goes on %v: %+v", name, !c.goesOn, f.lines)
		}
	}
}

// The removal of a network waits for the guests that use it, unless their own steps are
// held: then nothing goes on until the user permits these.
func TestRemovalsAreNotWaitedForWhileTheirMachinesAreHeld(t *testing.T) {
	two := other{Life: "dying", Status: "dying", Observed: true, Guests: map[string][]string{"web/eth0": {"10.1.2.3/24"}, "db/eth0": {"10.1.2.4/24"}}}
	for _, c := range []struct {
		o    other
		held []string
		want verdict
	}{
		{two, []string{"web", "db"}, asDeclared},
		{two, []string{"web"}, undecided},
		{other{Life: "dying", Observed: true}, []string{"web"}, undecided},
	} {
		if got, _ := judgeOther(c.o, true, true, c.held); got != c.want {
			t.Errorf("%v of %v: %v, want %v", c.held, c.o.Guests, got, c.want)
		}
	}
}

// A held step that has nothing to do with what is removed ends no wait for the removal.
func TestAnUnrelatedHeldStepEndsNoWait(t *testing.T) {
	p := client.Plan{
		Steps: []client.Step{
			{Object: "machine/web", Action: "recreate", Impact: "recreate", Detail: "user-data", Held: "--allow recreate", Allow: "recreate"},
			{Object: "machine/web", Action: "update", Impact: "live", Changes: []client.Change{{Field: "disk vol-data", From: "x", Impact: "live"}}},
			{Object: "volume/data", Action: "destroy", Impact: "destroy"},
		},
		Machines: []string{"web"}, Removed: []string{"volume/data"},
	}
	const used = `[{"name":"data","status":"detaching","observed":true,"life":"dying","attachments":[{"machine":"web","status":"detaching"}]}]`
	s := &standIn{plan: p, machines: []client.Machine{running("web", "10.1.2.3")}, rows: map[string]string{"volumes": used}, freeze: true, late: 1000}
	a := &app{quiet: true, env: env{Now: time.Now, Getenv: func(string) string { return "" }, Stdout: new(strings.Builder), Stderr: new(strings.Builder)}}
	if err := a.waitApplied(t.Context(), s, client.ApplyRequest{}, p, 300*time.Millisecond); err == nil {
		t.Error("the wait ended although volume/data is still being removed")
	}
}
