package agent

import (
	"context"

	"hostler/agent/conffiles"
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

// confDevice returns the filesystem of conf.d in the host's status.
func (h *host) confDevice(ctx context.Context) (string, error) {
	status, err := h.hostStatus(ctx)
	return status.ConfDevice, err
}

func (h *host) setConfDevice(ctx context.Context, device string) error {
	h.learning.Lock()
	defer h.learning.Unlock()
	status, err := h.hostStatus(ctx)
	if err != nil {
		return err
	}
	status.ConfDevice = device
	return h.writeHostStatus(ctx, status)
}
