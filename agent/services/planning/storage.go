package planning

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/storageprovisioner"
	"hostler/internal/plan"
)

// planStorage plans the volumes and filesystems among objects. It returns the
// steps and a copy of objects in which storage has its expected status, for the
// plan of the machines.
func (p Planner) planStorage(ctx context.Context, objects []state.Object, record spec.HostRecord) ([]client.Step, []state.Object, error) {
	desired, err := storageprovisioner.Decode(objects)
	if err != nil || len(desired.Entities) == 0 {
		return nil, objects, err
	}
	observed, err := p.Sources.Observe(ctx, desired)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot plan: cannot look at the host's storage: %w", err)
	}
	for _, source := range slices.Sorted(maps.Keys(observed.Blind)) {
		return nil, nil, fmt.Errorf("cannot plan: cannot look at the %s storage: %w", source, observed.Blind[source])
	}
	desired = desired.PlaceAtData(observed)
	policy := p.Sources.Policy(ctx, desired, storageprovisioner.ConfigOf(record))
	policy.Now = p.Now()
	var steps []client.Step
	shown := storageprovisioner.Shown(storageprovisioner.Plan(desired, observed, policy))
	for _, s := range slices.Concat(p.Sources.Preparing(desired, shown), shown) {
		steps = append(steps, storageStep(s))
	}
	return steps, storageprovisioner.ReadyObjects(objects, desired, observed, policy), nil
}

// storageWords holds the names and impacts of the actions in a shown plan.
var storageWords = map[storageprovisioner.Action]struct {
	word   string
	impact plan.Impact
}{
	storageprovisioner.ActionPrepare: {"initialise", plan.None},
	storageprovisioner.ActionCreate:  {"create", plan.None},
	storageprovisioner.ActionAdopt:   {"adopt", plan.None},
	storageprovisioner.ActionGrow:    {"update", plan.Live},
	storageprovisioner.ActionRemount: {"update", plan.None},
	storageprovisioner.ActionAttach:  {"attach", plan.Live},
	storageprovisioner.ActionShow:    {"attach", plan.Live},
	storageprovisioner.ActionDetach:  {"detach", plan.Live},
	storageprovisioner.ActionHide:    {"detach", plan.Live},
	storageprovisioner.ActionRelease: {"release", plan.None},
	storageprovisioner.ActionForget:  {"delete", plan.None},
	storageprovisioner.ActionDestroy: {"delete", plan.Destroy},
}

func storageStep(s storageprovisioner.Step) client.Step {
	words := storageWords[s.Action]
	view := client.Step{
		Object: s.Kind + "/" + s.Name, Action: words.word, Impact: words.impact,
		Detail: s.Detail, Held: s.Held,
	}
	switch {
	case s.Keeps:
		view.Impact = plan.None
	case s.Machine != "" && words.word == "attach":
		view.Detail = "to machine/" + s.Machine
	case s.Machine != "":
		view.Detail = "from machine/" + s.Machine
	case s.Detail == "" && (words.word == "attach" || words.word == "detach"):
		view.Detail = "as a block device of the host"
	}
	if words.word == "update" {
		view.Changes = slices.Clone(s.Changes)
		for i := range view.Changes {
			view.Changes[i].Impact = view.Impact
		}
	}
	return view
}
