package workerapi

import (
	"context"
	"encoding/json"
	"maps"
	"sync"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// namedImages caches the name of a machine that was declared with an image, by
// container type and reference. With it most checks read a single object.
type namedImages struct {
	mu       sync.Mutex
	machines map[namedImage]string
}

type namedImage struct {
	containerType spec.ContainerType
	reference     string
}

// declares reports whether a machine of the type is declared with the image.
// store must be restricted to the type. declares ignores statuses, because
// provisioners write them.
func (n *namedImages) declares(ctx context.Context, store state.Store, t spec.ContainerType, reference string) (bool, error) {
	key := namedImage{t, reference}
	n.mu.Lock()
	machine, known := n.machines[key]
	n.mu.Unlock()
	if known {
		o, err := store.Get(ctx, state.ID{Kind: spec.KindMachine, Name: machine})
		if err == nil && imageOf(o) == reference {
			return true, nil
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return false, err
		}
	}
	machines, _, err := store.List(ctx, spec.KindMachine)
	if err != nil {
		return false, err
	}
	found := map[namedImage]string{}
	for _, o := range machines {
		found[namedImage{t, imageOf(o)}] = o.Name
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := range n.machines {
		if k.containerType == t {
			delete(n.machines, k)
		}
	}
	if n.machines == nil {
		n.machines = map[namedImage]string{}
	}
	maps.Copy(n.machines, found)
	_, declared := found[key]
	return declared, nil
}

// imageOf returns the declared image of a machine, or "" if its record is
// unreadable.
func imageOf(o state.Object) string {
	var record struct {
		Machine struct {
			Image string `json:"image"`
		} `json:"machine"`
	}
	_ = json.Unmarshal(o.Spec, &record)
	return record.Machine.Image
}
