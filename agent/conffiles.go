package agent

import (
	"context"
	"fmt"
	"reflect"

	"hostler/agent/conffiles"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// followFiles prepares the followers of conf.d and of the configuration file.
func (h *host) followFiles() {
	h.declarations = conffiles.NewDeclarations(conffiles.Options{
		Dir: h.paths.ConfD(), Record: func(ctx context.Context, events ...state.Event) error { return h.store.Record(ctx, events...) }, Notice: h.notice, Logger: h.logger, Now: h.now,
		Group: func() int { return groupID(adminGroup) }, Device: h.confDevice, SetDevice: h.setConfDevice,
	})
	h.configuration = &conffiles.Configuration{
		Path: h.paths.Config, Notice: h.notice, Logger: h.logger, Now: h.now, Current: h.config, Write: h.writeConfig,
	}
}

// confDevice returns the filesystem of conf.d that the host's status records.
func (h *host) confDevice(ctx context.Context) (string, error) {
	_, status, _, err := h.object().Read(ctx)
	return status.ConfDevice, err
}

func (h *host) setConfDevice(ctx context.Context, device string) error {
	return h.object().Update(ctx, func(_ *spec.HostRecord, s *spec.HostStatus) { s.ConfDevice = device })
}

// resume returns the configuration to begin with, which is the store's if there is
// no file, and claims what it names.
func (h *host) resume(ctx context.Context, store state.Store, config spec.Config) (spec.Config, error) {
	last, err := lastConfig(ctx, store)
	resumed := h.configuration.Resume(config, last)
	if err != nil || reflect.DeepEqual(resumed, config) {
		return config, err
	}
	return resumed, h.reclaim(ctx, resumed)
}

// lastConfig returns the configuration in the store, or nil if it has none. A key
// that is newer than the store has its default.
func lastConfig(ctx context.Context, store state.Store) (*spec.Config, error) {
	o, err := store.Get(ctx, state.ID{Kind: spec.KindHost, Name: spec.HostName})
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	record := spec.HostRecord{Config: spec.DefaultConfig()}
	if err == nil {
		err = o.Decode(&record, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the last configuration: %w", err)
	}
	if record.Config.Namespace == "" { // the agent ended before it wrote its first
		return nil, nil
	}
	return &record.Config, nil
}
