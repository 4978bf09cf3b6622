package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// formerFolder is the folder of a hypervisor in which machines have their
// instances.
type formerFolder struct {
	folder   string
	machines []string
}

// apart returns the error that the hypervisor of a type is now that of the folder
// here.
func (f formerFolder) apart(t spec.ContainerType, here, back string) error {
	info, _ := t.Info()
	return fault.New(fault.NeedsOperator, "%s made %s in %s and has now the folder %s without them: %s, or permit new instances with `hostler allow recreate %s`; then `hostler retry type/%s`",
		info.Hypervisor, fault.List(f.machines, ", "), f.folder, here, back, f.machines[0], t)
}

// readFolders reads the folders that the store records. It notes those of types
// whose machines have instances and whose hypervisor is not there now. It claims the
// hypervisors that are used in place of those that were claimed without the records.
func (h *host) readFolders(ctx context.Context) error {
	before := h.sockets()
	for _, t := range h.types() {
		folder, err := recordedFolder(ctx, h.store, t)
		if err != nil {
			return err
		}
		h.paths.Used = append(h.paths.Used, folder)
		if folder == "" || folder == h.drivers[t].folderIn(h.paths, h.config().Types) {
			continue
		}
		instances, err := h.instancesOf(ctx, t)
		if err != nil {
			return err
		}
		if len(instances) > 0 {
			h.former[t] = formerFolder{folder, slices.Sorted(maps.Values(instances))}
		}
	}
	if maps.Equal(before, h.sockets()) {
		return nil
	}
	return h.reclaim(ctx, h.config())
}

// sockets returns the sockets of the hypervisors that the agent uses.
func (h *host) sockets() map[spec.ContainerType]string {
	all := map[spec.ContainerType]string{}
	for t, c := range h.drivers {
		if c.socket != nil {
			all[t] = c.socket(h.paths, h.config().Types)
		}
	}
	return all
}

// recordedFolder returns the folder that a type's status has, or "".
func recordedFolder(ctx context.Context, store state.Store, t spec.ContainerType) (string, error) {
	o, err := store.Get(ctx, state.ID{Kind: spec.KindContainerType, Name: string(t)})
	if fault.Is(err, fault.NotFound) {
		return "", nil
	}
	var status spec.TypeStatus
	if err == nil {
		err = o.Decode(nil, &status)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read type/%s: %w", t, err)
	}
	return status.Folder, nil
}

// instancesOf returns the tokens of the instances that the machines of a type
// must keep, and the machines. It leaves out those that are being removed, and
// those that the user permitted to make again.
func (h *host) instancesOf(ctx context.Context, t spec.ContainerType) (map[string]string, error) {
	machines, _, err := h.store.List(ctx, spec.KindMachine)
	if err != nil {
		return nil, fmt.Errorf("cannot read the machines: %w", err)
	}
	instances := map[string]string{}
	for _, o := range machines {
		var record spec.MachineRecord
		var status spec.MachineStatus
		if err := o.Decode(&record, &status); err != nil {
			return nil, err
		}
		if o.Life == state.Alive && record.Machine.Type == t && status.Instance != nil && !record.AllowsRecreate(&status) {
			instances[status.Instance.Token] = spec.KindMachine + "/" + o.Name
		}
	}
	return instances, nil
}

// checkFolder implements containersetup.Options.Folder.
func (h *host) checkFolder(t spec.ContainerType) func(context.Context, string) (string, error) {
	c := h.drivers[t]
	if c.folder == nil {
		return nil
	}
	return func(ctx context.Context, before string) (string, error) {
		here := c.folder(h.paths, h.config().Types)
		if here == "" {
			return "", nil
		}
		if before != "" && before != here {
			missing, err := h.missing(ctx, t)
			if err != nil {
				return "", err
			}
			if len(missing) > 0 {
				return "", formerFolder{before, missing}.apart(t, here, c.back(h.paths, before))
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.former, t)
		return here, nil
	}
}

// missing returns the machines of a type whose instances the hypervisor does not
// have.
func (h *host) missing(ctx context.Context, t spec.ContainerType) ([]string, error) {
	instances, err := h.instancesOf(ctx, t)
	if err != nil || len(instances) == 0 {
		return nil, err
	}
	h.mu.Lock()
	d, err := h.drivers[t].driver(h) // not h.driver(), which keeps and claims it
	h.mu.Unlock()
	var there []containerbroker.Instance
	if err == nil {
		there, err = d.Broker.List(ctx, false)
	}
	if err != nil && !fault.Is(err, fault.NotReady) {
		return nil, err
	}
	for _, i := range there {
		if i.Stamp != nil {
			delete(instances, i.Stamp.Token)
		}
	}
	return slices.Sorted(maps.Values(instances)), nil
}
