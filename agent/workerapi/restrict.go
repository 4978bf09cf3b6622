package workerapi

import (
	"context"
	"encoding/json"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// restricted is the store for the worker of one container type. It shows the
// type's machines, the type's object, the host's configuration, networks and
// storage. Write() permits changes of machines only.
type restricted struct {
	b state.Backend
	t spec.ContainerType
}

func restrict(b state.Backend, t spec.ContainerType) *restricted { return &restricted{b, t} }

var visibleKinds = []string{spec.KindMachine, spec.KindContainerType, spec.KindHost, spec.KindNetwork, spec.KindVolume, spec.KindFilesystem}

// own reports whether the worker has permission to see an object.
func (v *restricted) own(o state.Object) bool {
	switch o.Kind {
	case spec.KindMachine:
		var record struct {
			Machine struct {
				Type spec.ContainerType `json:"type"`
			} `json:"machine"`
		}
		return json.Unmarshal(o.Spec, &record) == nil && record.Machine.Type == v.t
	case spec.KindContainerType:
		return o.Name == string(v.t)
	default:
		return slices.Contains(visibleKinds, o.Kind)
	}
}

func checkKinds(kinds ...string) error {
	for _, k := range kinds {
		if !slices.Contains(visibleKinds, k) {
			return fault.New(fault.Forbidden, "you may not see objects of the kind %q", fault.Clip(k, 64))
		}
	}
	return nil
}

// Get gives the same answer for absent objects and for objects of other types.
func (v *restricted) Get(ctx context.Context, id state.ID) (state.Object, error) {
	if err := checkKinds(id.Kind); err != nil {
		return state.Object{}, err
	}
	o, err := v.b.Get(ctx, id)
	if fault.Is(err, fault.NotFound) || err == nil && !v.own(o) {
		return state.Object{}, notFound(id)
	}
	if err == nil {
		err = hideProxyUsers(&o)
	}
	return o, err
}

// hideProxyUsers removes user names and passwords from the proxies in the
// host's object. It leaves other objects as they are.
func hideProxyUsers(o *state.Object) error {
	if o.Kind != spec.KindHost {
		return nil
	}
	var record spec.HostRecord
	if err := json.Unmarshal(o.Spec, &record); err != nil {
		return fault.New(fault.NeedsOperator, "cannot read the host's record: %v", err)
	}
	record.Config = record.Config.WithoutProxyUsers()
	o.Spec = spec.Encode(record)
	return nil
}

func (v *restricted) List(ctx context.Context, kinds ...string) ([]state.Object, int64, error) {
	if len(kinds) == 0 {
		kinds = visibleKinds
	}
	if err := checkKinds(kinds...); err != nil {
		return nil, 0, err
	}
	objects, revision, err := v.b.List(ctx, kinds...)
	objects = slices.DeleteFunc(objects, func(o state.Object) bool { return !v.own(o) })
	for i := range objects {
		if err == nil {
			err = hideProxyUsers(&objects[i])
		}
	}
	return objects, revision, err
}

// Watch forwards the ids of objects that the worker has permission to see. It
// also forwards the ids of removed objects that were visible to the worker.
func (v *restricted) Watch(ctx context.Context, kinds ...string) (<-chan []state.ID, error) {
	if len(kinds) == 0 {
		kinds = visibleKinds
	}
	if err := checkKinds(kinds...); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	from, err := v.b.Watch(ctx, kinds...)
	if err != nil {
		cancel()
		return nil, err
	}
	to := make(chan []state.ID)
	go func() {
		defer close(to)
		defer cancel()
		known := map[state.ID]bool{}
		for first := true; ; {
			select {
			case <-ctx.Done():
				return
			case ids, ok := <-from:
				if !ok {
					return
				}
				// If the store cannot be read, end the watch.
				own, err := v.filter(ctx, ids, known)
				if err != nil {
					return
				}
				if !first && len(own) == 0 {
					continue
				}
				first = false
				select {
				case to <- own:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return to, nil
}

// filter returns the ids of objects that are visible now or are in known. It
// updates known, which holds the ids that were visible at their last event.
func (v *restricted) filter(ctx context.Context, ids []state.ID, known map[state.ID]bool) ([]state.ID, error) {
	there, err := v.look(ctx, ids)
	if err != nil {
		return nil, err
	}
	own := []state.ID{}
	for _, id := range ids {
		if there[id] || known[id] {
			own = append(own, id)
		}
		if there[id] {
			known[id] = true
		} else {
			delete(known, id)
		}
	}
	return own, nil
}

// look returns the set of those ids whose objects the worker has permission to
// see now.
func (v *restricted) look(ctx context.Context, ids []state.ID) (map[state.ID]bool, error) {
	there := map[state.ID]bool{}
	// A single list is cheaper than many gets.
	if len(ids) > 16 {
		objects, _, err := v.List(ctx)
		for _, o := range objects {
			there[o.ID] = true
		}
		return there, err
	}
	for _, id := range ids {
		o, err := v.b.Get(ctx, id)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		there[id] = err == nil && v.own(o)
	}
	return there, nil
}
