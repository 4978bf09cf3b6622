package provisioner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

var t0 = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

const ns = "hostler"

// machine returns a record of a running machine that was never provisioned.
func machine(name string, change ...func(*Desired)) Desired {
	d := Desired{
		Name: name, UID: "uid-" + name, Life: state.Alive, Generation: 1,
		Record:  spec.MachineRecord{Header: spec.Header{Declaration: "d"}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12"}},
		Status:  spec.MachineStatus{State: spec.MachinePending, ObservedGeneration: 1},
		Machine: containerbroker.Machine{Name: name, Stamp: containerbroker.Stamp{Namespace: ns, UID: "uid-" + name}},
	}
	for _, c := range change {
		c(&d)
	}
	return d
}

func provisioned(d *Desired) {
	d.Status.State = spec.MachineRunning
	d.Status.Instance = &spec.InstanceInfo{Name: d.Name, Token: "token-" + d.Name, Image: "debian/12", Created: t0}
	setReady(&d.Status, true, "Usable", "", t0)
}

func adopted(d *Desired) { d.Record.Adopted = true }

func migrating(p spec.MigrationPhase) func(*Desired) {
	return func(d *Desired) {
		d.Record.Migration = &spec.Migration{From: spec.LXD, To: spec.Incus, Phase: p}
	}
}

func dying(d *Desired) { d.Life, d.Generation = state.Dying, 2 }

func failed(kind fault.Kind, next *time.Time) func(*Desired) {
	return func(d *Desired) {
		d.Status.State = spec.MachineError
		d.Status.Attempts = spec.Attempts{Count: 1, ErrorKind: string(kind), NextRetry: next}
	}
}

// instance returns the running instance of a machine.
func instance(name string, change ...func(*containerbroker.Instance)) containerbroker.Instance {
	i := containerbroker.Instance{
		Name: name, Status: containerbroker.StatusRunning,
		Stamp: &containerbroker.Stamp{Namespace: ns, UID: "uid-" + name, Token: "token-" + name},
	}
	for _, c := range change {
		c(&i)
	}
	return i
}

func stopped(i *containerbroker.Instance) { i.Status = containerbroker.StatusStopped }

func unreadable(i *containerbroker.Instance) {
	i.Stamp, i.Unreadable, i.Status = &containerbroker.Stamp{Namespace: "?"}, true, containerbroker.StatusError
}

func halfMade(i *containerbroker.Instance) { i.Status = containerbroker.StatusHalfMade }

// begun returns the open intent of a machine's create.
func begun(name string) []state.Intent {
	return []state.Intent{{Token: "token-" + name, UID: "uid-" + name, Action: string(ActionCreate), Began: t0}}
}
func foreign(i *containerbroker.Instance) { i.Stamp = nil }

// madeAs stamps the instance with the record of a machine of the type.
func madeAs(t spec.ContainerType) func(*containerbroker.Instance) {
	return func(i *containerbroker.Instance) {
		i.Stamp.Record = string(spec.Encode(StampedRecord{Name: i.Name, Machine: spec.Machine{Type: t}}))
	}
}

// copied returns a later copy of web, made by the user.
func copied(name string) containerbroker.Instance {
	return instance("web", stopped, func(i *containerbroker.Instance) { i.Name, i.Created = name, t0.Add(time.Hour) })
}

func noDiff(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change { return nil }

func differs(changes ...containerbroker.Change) func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change {
	return func(containerbroker.Machine, containerbroker.Instance) []containerbroker.Change { return changes }
}

// summary returns action and machine of each step, with a mark on steps that
// are held or not yet due.
func summary(steps []Step, now time.Time) []string {
	var lines []string
	for _, s := range steps {
		line := string(s.Action) + " " + s.Machine
		if s.Held != "" {
			line += " held"
		}
		if s.Allow != "" {
			line += ", allow " + string(s.Allow)
		}
		if s.After.After(now) {
			line += " in " + s.After.Sub(now).Truncate(time.Second).String() // without its jitter
		}
		lines = append(lines, line)
	}
	return lines
}

func TestClassification(t *testing.T) {
	later := t0.Add(7 * time.Second)
	earlierOn := t0.Add(-7 * time.Second)
	nextYear := t0.AddDate(1, 0, 0)
	intent := func(age time.Duration) []state.Intent {
		return []state.Intent{{Token: "token-web", UID: "uid-web", Began: t0.Add(-age)}}
	}
	cases := []struct {
		name      string
		desired   []Desired
		instances []containerbroker.Instance
		intents   []state.Intent
		policy    Policy
		want      []string
	}{
		{name: "P13 pending is created", desired: []Desired{machine("web")}, want: []string{"create web"}},
		{
			name: "P8 dead and provisioned is deleted", desired: []Desired{machine("web", provisioned, dying, func(d *Desired) { d.Life = state.Dead })},
			instances: []containerbroker.Instance{instance("web")}, want: []string{"delete web"},
		},
		{
			// Nothing else on the host depends on a machine; its storage and addresses
			// wait for its removal.
			name: "P9 dying and provisioned is deleted", desired: []Desired{machine("web", provisioned, dying)},
			instances: []containerbroker.Instance{instance("web")}, want: []string{"delete web"},
		},
		{
			name: "I16 an instance that cannot be read is left as it is", desired: []Desired{machine("web", provisioned)},
			instances: []containerbroker.Instance{instance("web", unreadable)},
		},
		{
			name: "I16 and has its record until the driver can delete it", desired: []Desired{machine("web", provisioned, dying)},
			instances: []containerbroker.Instance{instance("web", unreadable)}, want: []string{"delete web"},
		},
		{name: "P10 dying and never provisioned needs no hypervisor", desired: []Desired{machine("web", dying)}, want: []string{"forget web"}},
		{
			name: "P10 a create that may still arrive is waited for", desired: []Desired{machine("web", dying)}, intents: intent(2 * time.Second),
			want: []string{"forget web in 3s"},
		},
		{name: "P15 an errored machine is not tried again", desired: []Desired{machine("web", failed(fault.NeedsOperator, nil))}},
		{
			name: "P15 a changed declaration clears the error", desired: []Desired{machine("web", failed(fault.NeedsOperator, nil), func(d *Desired) { d.Generation = 2 })},
			want: []string{"create web"},
		},
		{
			name: "P15 an event that bears on it clears the error", desired: []Desired{machine("web", failed(fault.NeedsOperator, nil))},
			policy: Policy{Nudged: map[string]bool{"web": true}}, want: []string{"create web"},
		},
		{name: "P36 a retry waits for its time", desired: []Desired{machine("web", failed(fault.Transient, &later))}, want: []string{"create web in 7s"}},
		{
			name: "W7 something that came into being ends the wait of what has no instance", desired: []Desired{machine("web", failed(fault.Transient, &later))},
			policy: Policy{Nudged: map[string]bool{nudgeWant: true}}, want: []string{"create web"},
		},
		{
			name: "W7 and no other's", desired: []Desired{machine("web", provisioned, failed(fault.Transient, &later))},
			instances: []containerbroker.Instance{instance("web", stopped)},
			policy:    Policy{Nudged: map[string]bool{nudgeWant: true}}, want: []string{"start web in 7s"},
		},
		{name: "P43 a retry whose time has come", desired: []Desired{machine("web", failed(fault.Transient, &earlierOn))}, want: []string{"create web"}},
		{
			name:    "F22 a retry that a clock a year ahead put off is due",
			desired: []Desired{machine("web", failed(fault.Transient, &nextYear))}, want: []string{"create web"},
		},
		{
			name:    "F22 a create that a clock a year ahead began is not waited for",
			desired: []Desired{machine("web", dying)}, intents: intent(-365 * 24 * time.Hour), want: []string{"forget web"},
		},
		{name: "F22 a start that a clock a year ahead dated is not waited for", desired: []Desired{machine("web", provisioned, func(d *Desired) {
			d.Status.StartedAt, d.Status.Deaths = &nextYear, 4
		})}, instances: []containerbroker.Instance{instance("web", stopped)}, want: []string{"start web"}},
		{
			name:      "P28 a release that failed waits for its time",
			desired:   []Desired{machine("web", provisioned, dying, failed(fault.Transient, &later), func(d *Desired) { d.Status.ObservedGeneration, d.Record.Released = 2, true })},
			instances: []containerbroker.Instance{instance("web")}, want: []string{"release web in 7s"},
		},
		{
			name:      "P28 a release that needs an operator is not tried again",
			desired:   []Desired{machine("web", provisioned, dying, failed(fault.NeedsOperator, nil), func(d *Desired) { d.Status.ObservedGeneration, d.Record.Released = 2, true })},
			instances: []containerbroker.Instance{instance("web")},
		},
		{
			name: "P16 found after a crash: recorded, then made ready", desired: []Desired{machine("web")}, intents: intent(time.Hour),
			instances: []containerbroker.Instance{instance("web", stopped)}, want: []string{"record web", "start web"},
		},
		{
			name: "P33 a token that no create used is not ours", desired: []Desired{machine("web")},
			instances: []containerbroker.Instance{instance("web")}, want: []string{"conflict web held"},
		},
		{
			name: "P33 another token than the recorded one", desired: []Desired{machine("web", provisioned)},
			instances: []containerbroker.Instance{instance("web", func(i *containerbroker.Instance) { i.Stamp.Token = "other" })}, want: []string{"conflict web held"},
		},
		{name: "as declared", desired: []Desired{machine("web", provisioned)}, instances: []containerbroker.Instance{instance("web")}},
		{name: "gone behind our back: made again", desired: []Desired{machine("web", provisioned)}, want: []string{"create web"}},
		{
			name: "died: started", desired: []Desired{machine("web", provisioned)}, instances: []containerbroker.Instance{instance("web", stopped)},
			want: []string{"start web"},
		},
		{name: "dies soon after every start: pauses grow", desired: []Desired{machine("web", provisioned, func(d *Desired) {
			d.Status.StartedAt, d.Status.Deaths = &t0, 4
		})}, instances: []containerbroker.Instance{instance("web", stopped)}, want: []string{"start web in 4s"}},
		{name: "a moving machine is left alone", desired: []Desired{machine("web", provisioned, migrating(spec.MigrationMoving))}},
		{name: "so is its removal until the end", desired: []Desired{machine("web", provisioned, dying, migrating(spec.MigrationMoved))}, instances: []containerbroker.Instance{instance("web")}},
		{name: "busy is left alone", desired: []Desired{machine("web"), machine("db")}, policy: Policy{Busy: map[string]bool{"web": true}}, want: []string{"create db"}},
		{name: "P20 nothing is planned blindly", desired: []Desired{machine("web")}, policy: Policy{Namespace: "blind"}},
		{
			name: "a foreign instance has the name", desired: []Desired{machine("web")}, instances: []containerbroker.Instance{instance("web", foreign)},
			want: []string{"conflict web held"},
		},
		{
			name: "Z4 declared as stopped", desired: []Desired{machine("web", provisioned, func(d *Desired) { no := false; d.Record.Machine.Running = &no })},
			instances: []containerbroker.Instance{instance("web")}, want: []string{"stop web"},
		},
		{
			name: "Z4 what needs a restart follows the stop", desired: []Desired{machine("web", provisioned, func(d *Desired) { d.Record.Machine.Running = new(false) })},
			instances: []containerbroker.Instance{instance("web")}, want: []string{"stop web", "update web"},
			policy: Policy{Diff: differs(containerbroker.Change{Field: "nesting", Impact: containerbroker.ImpactRestart})},
		},
		{
			name: "stopped by hand overrides the declaration", desired: []Desired{machine("web", provisioned, func(d *Desired) { no := false; d.Record.PowerOverride = &no })},
			instances: []containerbroker.Instance{instance("web", stopped)},
		},
		{
			name: "P17 drift is put right as it runs", desired: []Desired{machine("web", provisioned)}, instances: []containerbroker.Instance{instance("web")},
			policy: Policy{Diff: differs(containerbroker.Change{Field: "cpus", Impact: containerbroker.ImpactLive})}, want: []string{"update web"},
		},
		{
			name: "a restart waits for a word", desired: []Desired{machine("web", provisioned)}, instances: []containerbroker.Instance{instance("web")},
			policy: Policy{Diff: differs(containerbroker.Change{Field: "nesting", Impact: containerbroker.ImpactRestart})}, want: []string{"restart web held, allow restart"},
		},
		{
			name: "a restart with a word", desired: []Desired{machine("web", provisioned, func(d *Desired) { d.Record.Consent([]string{"restart"}) })},
			instances: []containerbroker.Instance{instance("web")},
			policy:    Policy{Diff: differs(containerbroker.Change{Field: "nesting", Impact: containerbroker.ImpactRestart})}, want: []string{"restart web"},
		},
		{
			name: "what needs a restart is live on a stopped instance", desired: []Desired{machine("web", provisioned, func(d *Desired) { no := false; d.Record.Machine.Running = &no })},
			instances: []containerbroker.Instance{instance("web", stopped)},
			policy:    Policy{Diff: differs(containerbroker.Change{Field: "nesting", Impact: containerbroker.ImpactRestart})}, want: []string{"update web"},
		},
		{
			name: "another image needs a recreate", desired: []Desired{machine("web", provisioned, func(d *Desired) { d.Record.Machine.Image = "debian/13" })},
			instances: []containerbroker.Instance{instance("web")}, want: []string{"recreate web held, allow recreate"},
		},
		{name: "another image with a word", desired: []Desired{machine("web", provisioned, func(d *Desired) {
			d.Record.Machine.Image = "debian/13"
			d.Record.Consent([]string{"recreate"})
		})}, instances: []containerbroker.Instance{instance("web")}, want: []string{"recreate web"}},
		{
			name: "P33 what somebody else made is not deleted with the machine", desired: []Desired{machine("web", provisioned, dying)},
			instances: []containerbroker.Instance{instance("web", func(i *containerbroker.Instance) { i.Stamp.Token = "other" })},
			want:      []string{"forget web"},
		},
		{
			name: "P24 a copy that a person made is not unknown",
			instances: []containerbroker.Instance{instance("web-copy", func(i *containerbroker.Instance) {
				i.Stamp.Record = `{"name":"web"}`
			})}, policy: Policy{Harvest: HarvestAll},
		},
		{
			name: "P28 retain lets the instance go", desired: []Desired{machine("web", provisioned, dying, func(d *Desired) { d.Record.Machine.Retain = true })},
			instances: []containerbroker.Instance{instance("web")}, want: []string{"release web"},
		},
		{
			name: "P23 harvest none leaves the instance", desired: []Desired{machine("web", provisioned, dying)}, instances: []containerbroker.Instance{instance("web")},
			policy: Policy{Harvest: HarvestNone}, want: []string{"forget web"},
		},
		{
			name: "P28 a released one that was never whole is deleted", intents: begun("web"),
			desired:   []Desired{machine("web", dying, func(d *Desired) { d.Record.Released = true })},
			instances: []containerbroker.Instance{instance("web", halfMade)}, want: []string{"delete web"},
		},
		{
			name: "P28 a released one that was whole is kept, whatever it looks like", desired: []Desired{machine("web", provisioned, dying, func(d *Desired) { d.Record.Released = true })},
			instances: []containerbroker.Instance{instance("web", halfMade)}, want: []string{"release web"},
		},
		{
			name: "P28 a retained one that was never whole is deleted", intents: begun("web"),
			desired:   []Desired{machine("web", dying, func(d *Desired) { d.Record.Machine.Retain = true })},
			instances: []containerbroker.Instance{instance("web", halfMade)}, want: []string{"delete web"},
		},
		{
			name: "P24 harvest unknown leaves the released", desired: []Desired{machine("web", provisioned, dying)}, instances: []containerbroker.Instance{instance("web")},
			policy: Policy{Harvest: HarvestUnknown}, want: []string{"forget web"},
		},
		{name: "P24 harvest destroyed leaves the unknown", instances: []containerbroker.Instance{instance("old")}},
		{
			name: "P24 Z1 harvest unknown though nothing is dead", instances: []containerbroker.Instance{instance("old")},
			policy: Policy{Harvest: HarvestUnknown}, want: []string{"harvest old"},
		},
		{name: "P24 foreign instances are never unknown", instances: []containerbroker.Instance{
			instance("old", foreign),
			instance("other", func(i *containerbroker.Instance) { i.Stamp.Namespace = "another" }),
		}, policy: Policy{Harvest: HarvestAll}},
		{
			name:      "P24 instances of another container type are not harvested",
			instances: []containerbroker.Instance{instance("old", madeAs(spec.KVM)), instance("own", madeAs(spec.LXD)), instance("web", madeAs("later"))},
			policy:    Policy{Harvest: HarvestAll}, want: []string{"harvest own"},
		},
		{name: "P25 P27 dead and already gone", desired: []Desired{machine("web", provisioned, dying)}, want: []string{"forget web"}},
		{
			name: "P19 removals come first", desired: []Desired{machine("a"), machine("z", provisioned, dying)},
			instances: []containerbroker.Instance{instance("z"), instance("old")}, policy: Policy{Harvest: HarvestAll},
			want: []string{"harvest old", "delete z", "create a"},
		},
		{
			name: "B10 P17 readiness is looked at again after a restart", desired: []Desired{machine("web", provisioned, func(d *Desired) { d.Status.Conditions = nil })},
			instances: []containerbroker.Instance{instance("web")}, want: []string{"ready web"},
		},
		{
			name: "I3 a create that was cut short is made again", desired: []Desired{machine("web")}, intents: begun("web"),
			instances: []containerbroker.Instance{instance("web", halfMade)}, want: []string{"recreate web"},
		},
		{
			name: "an allowed restart of a frozen instance waits for its resume", desired: []Desired{machine("web", provisioned, func(d *Desired) {
				d.Record.Consent([]string{"restart"})
			})},
			instances: []containerbroker.Instance{instance("web", func(i *containerbroker.Instance) { i.Status = containerbroker.StatusFrozen })},
			policy:    Policy{Diff: differs(containerbroker.Change{Field: "nesting", Impact: containerbroker.ImpactRestart})},
			want:      []string{"restart web held"},
		},
		{
			name: "I3 a create that still goes on is waited for", desired: []Desired{machine("web")}, intents: begun("web"),
			instances: []containerbroker.Instance{instance("web", func(i *containerbroker.Instance) { i.Status = containerbroker.StatusBusy })},
		},
		{
			name: "a recorded instance is whole, whatever it looks like", desired: []Desired{machine("web", provisioned)},
			instances: []containerbroker.Instance{instance("web", halfMade)}, want: []string{"start web"},
		},
		{
			name: "P33 an adopted instance is whole, whatever it looks like", desired: []Desired{machine("web", adopted)}, intents: begun("web"),
			instances: []containerbroker.Instance{instance("web", halfMade)}, want: []string{"record web", "start web"},
		},
		{
			name: "I3 a create in place of an adopted instance is made again", intents: begun("web"),
			desired:   []Desired{machine("web", adopted, func(d *Desired) { d.Record.AdoptedToken = "former" })},
			instances: []containerbroker.Instance{instance("web", halfMade)}, want: []string{"recreate web"},
		},
		{
			name: "P28 P33 an adopted instance that looks half made is kept", intents: begun("web"),
			desired:   []Desired{machine("web", adopted, dying, func(d *Desired) { d.Record.Released = true })},
			instances: []containerbroker.Instance{instance("web", halfMade)}, want: []string{"release web"},
		},
		{
			name:      "P33 nor is it deleted with another machine's token",
			desired:   []Desired{machine("web", adopted, dying)},
			instances: []containerbroker.Instance{instance("web", halfMade)}, want: []string{"forget web"},
		},
		{
			name: "a half-made instance that is not declared is deleted", desired: []Desired{machine("web", dying)},
			instances: []containerbroker.Instance{instance("web", halfMade)}, want: []string{"delete web"},
		},
		{
			name: "W2 a copy made by hand is not the machine", desired: []Desired{machine("web", provisioned)},
			instances: []containerbroker.Instance{copied("aweb"), instance("web"), copied("zweb")},
		},
		{
			name: "W2 a copy made by hand outlives the machine", desired: []Desired{machine("web", provisioned, dying)},
			instances: []containerbroker.Instance{copied("aweb"), instance("web"), copied("zweb")}, want: []string{"delete web"},
		},
		{
			name: "W2 a copy made by hand is not taken for what is gone", desired: []Desired{machine("web", provisioned, dying), machine("db", provisioned)},
			instances: []containerbroker.Instance{copied("zweb"), instance("db")}, want: []string{"forget web"},
		},
		{
			name: "a rename by hand is told", desired: []Desired{machine("web", provisioned)},
			instances: []containerbroker.Instance{instance("web", func(i *containerbroker.Instance) { i.Name = "renamed" })}, want: []string{"conflict web held"},
		},
		{
			name: "the hypervisor is busy with it", desired: []Desired{machine("web", provisioned)},
			instances: []containerbroker.Instance{instance("web", func(i *containerbroker.Instance) { i.Status = containerbroker.StatusBusy })},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := c.policy
			complete := p.Namespace != "blind"
			p.Type, p.Namespace, p.Now, p.LongestDelay = spec.LXD, ns, t0, time.Minute
			if p.Harvest == "" {
				p.Harvest = HarvestDestroyed
			}
			if p.Diff == nil {
				p.Diff = noDiff
			}
			got := summary(Plan(c.desired, Observed{Complete: complete, Instances: c.instances, Intents: c.intents}, p), t0)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("plan differs (-want +got):\n%s", d)
			}
		})
	}
}

func TestDeathDelays(t *testing.T) {
	want := []time.Duration{0, 0, time.Second, 2 * time.Second, 4 * time.Second}
	after := func(deaths int) time.Duration {
		d := machine("web", func(d *Desired) { d.Status.Deaths = deaths })
		return d.deathPause()
	}
	for n, d := range want {
		if got := after(n); got < d || got > d+d/4 {
			t.Errorf("delay after %d deaths: %s, want %s", n, got, d)
		}
	}
	if got := after(1000); got < 5*time.Minute || got > 7*time.Minute {
		t.Errorf("the delay is bounded: %s", got)
	}
}

// A failure with no step left is over, since no later step would clear it. A
// failure with a planned step, or one that waits for the operator, stays.
func TestFailureEndsWithTheLastStep(t *testing.T) {
	later := t0.Add(time.Second)
	for name, c := range map[string]struct {
		change func(*Desired)
		want   spec.MachineState
	}{
		"nothing is left to do": {failed(fault.Transient, &later), spec.MachineRunning},
		"it waits for a person": {failed(fault.NeedsOperator, nil), spec.MachineError},
		"it is not ready": {func(d *Desired) {
			failed(fault.Transient, &later)(d)
			setReady(&d.Status, false, "Starting", "", t0)
		}, spec.MachineError},
	} {
		d := machine("web", provisioned, c.change)
		d.Status.Conditions = spec.SetCondition(d.Status.Conditions, spec.Condition{Type: ConditionFailed, Status: true, Reason: reasonFailed, Message: "no space"})
		inst := instance("web")
		steps := Plan([]Desired{d}, Observed{Complete: true, Instances: []containerbroker.Instance{inst}},
			Policy{Namespace: ns, Harvest: HarvestDestroyed, Now: t0, Diff: noDiff})
		got := assess(&d, &inst, steps, t0)
		if got.State != c.want || (got.Attempts.ErrorKind == "") != (c.want == spec.MachineRunning) {
			t.Errorf("%s: %s, %s, %+v", name, got.State, got.Message, got.Attempts)
		}
	}
}

// A change of only the user-data applies to a new machine and delays neither a
// network nor storage. Together with another change it delays them.
func TestHeldUserDataDelaysNoAttachment(t *testing.T) {
	held := func(fields ...string) Step {
		s := Step{Action: ActionRecreate, Held: "--allow recreate", Impact: containerbroker.ImpactRecreate}
		for _, f := range fields {
			s.Changes = append(s.Changes, containerbroker.Change{Field: f})
		}
		return s
	}
	user, image := containerbroker.FieldUserData, containerbroker.FieldImage
	for _, c := range []struct {
		steps    []Step
		attached bool
	}{
		{nil, true},
		{[]Step{held(user)}, true},
		{[]Step{held(user, image)}, false},
		{[]Step{held(user), held("nic eth0")}, false},
		{[]Step{held("nic eth0"), held(user)}, false},
	} {
		s := assess(new(machine("web", provisioned)), new(instance("web")), c.steps, t0)
		if spec.Differs(s.Conditions) != (len(c.steps) > 0) || spec.AttachmentsMatch(s.Conditions) != c.attached {
			t.Errorf("%+v: %+v", c.steps, s.Conditions)
		}
	}
}
