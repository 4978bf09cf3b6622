package agent

import (
	"context"

	"hostler/agent/conffiles"
	"hostler/agent/spec"
	"hostler/agent/state"
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
