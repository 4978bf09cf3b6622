package agent

import (
	"context"
	"sync"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

const (
	// movedAge is the age up to which a list of moved instances counts as current.
	// An import of instances into another hypervisor takes longer.
	movedAge = 5 * time.Second
	// movedTimeout is the time that the creates of the other types wait for a
	// hypervisor that hangs, once per movedAge.
	movedTimeout = 3 * time.Second
)

// movedStore is the store that the agent's workers see. It refuses the intent to
// create a machine whose instance another hypervisor has, e.g. after a user
// imported LXD's containers into Incus. The new instance would be empty, and
// both instances would use the machine's volumes. The provisioner cannot check
// this, because it speaks to the hypervisor of its own type only.
type movedStore struct {
	state.Backend
	h *host

	mu    sync.Mutex
	lists map[spec.ContainerType]movedList
}

// movedList holds the names of a hypervisor's moved instances by uid.
type movedList struct {
	read  time.Time
	names map[string]string
}

// sparing returns the store that refuses creates of moved machines.
func (h *host) sparing(b state.Backend) state.Backend {
	return &movedStore{Backend: b, h: h, lists: map[spec.ContainerType]movedList{}}
}

// Begin implements state.Backend. The error is of the kind NeedsOperator.
func (s *movedStore) Begin(ctx context.Context, in state.Intent) error {
	if in.Action != string(provisioner.ActionCreate) || in.UID == "" {
		return s.Backend.Begin(ctx, in)
	}
	for _, t := range s.h.types() {
		if string(t) == in.Owner {
			continue
		}
		names, err := s.moved(ctx, t)
		if err != nil {
			return err
		}
		if name, moved := names[in.UID]; moved && !s.replaced(ctx, in, t) {
			return fault.New(fault.NeedsOperator, "%s/%s is the instance of machine/%s, which is of type %s: let the machine go with `hostler release %s`, "+
				"then take the instance over with `hostler adopt %s/%s`; or delete the instance with the hypervisor's tools, then `hostler retry machine/%s`",
				t, name, in.Object.Name, in.Owner, in.Object.Name, t, name, in.Object.Name)
		}
	}
	return s.Backend.Begin(ctx, in)
}

// replaced reports whether the machine's instance of type t is the original that
// `hostler migrate` left, and the user has permitted to make the machine again.
// The migration keeps such an original if it has data that the machine lacks.
func (s *movedStore) replaced(ctx context.Context, in state.Intent, t spec.ContainerType) bool {
	o, err := s.Get(ctx, in.Object)
	var r spec.MachineRecord
	var status spec.MachineStatus
	if err != nil || o.UID != in.UID || o.Decode(&r, &status) != nil || r.Migration == nil {
		return false
	}
	return r.Migration.From == t && string(r.Machine.Type) == in.Owner && r.AllowsRecreate(&status)
}

// moved returns the names of a type's moved instances by uid. A hypervisor that
// does not exist or does not answer holds up no machine of another type.
func (s *movedStore) moved(ctx context.Context, t spec.ContainerType) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.lists[t]; ok && s.h.now().Sub(l.read).Abs() < movedAge {
		return l.names, nil
	}
	limited, cancel := context.WithTimeout(ctx, movedTimeout)
	defer cancel()
	names := map[string]string{}
	broker, err := s.h.broker(t)
	if err == nil {
		instances, unlisted := broker.List(limited, false)
		err = unlisted
		for _, i := range instances {
			if i.Stamp != nil && i.Stamp.Namespace == s.h.config().Namespace && provisioner.MadeAs(i, t) != "" {
				names[i.Stamp.UID] = i.Name
			}
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		s.h.logger.Debug("Whether machines were moved to another hypervisor is not known.", "type", t, "error", err)
	}
	s.lists[t] = movedList{read: s.h.now(), names: names}
	return names, nil
}
