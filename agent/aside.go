package agent

import (
	"context"
	"fmt"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// setAside has a type's hypervisor cleared of what a power cut left in the way
// of new machines, and tells where it is kept. Where that fails, the machines
// that nothing is in the way of are worked on all the same. It says whether
// some of it had to be left for now.
func (h *host) setAside(ctx context.Context, t spec.ContainerType) (more bool) {
	d, err := h.driver(t)
	if err != nil {
		return false // there is nothing of it yet
	}
	cleaner, able := d.Broker.(containerbroker.Cleaner)
	if !able {
		return false
	}
	places, more, err := cleaner.SetAside(ctx)
	if err != nil {
		h.logger.Warn("What a power cut may have left in the way of machines cannot be looked for.", "type", t, "error", err)
	}
	if len(places) == 0 {
		return more
	}
	text := fmt.Sprintf("files of containers that %s has forgotten, as after a power cut, were set aside; remove them when nothing in them is needed: %s", strings.ToUpper(string(t)), strings.Join(places, ", "))
	h.logger.Warn("Files were set aside.", "type", t, "places", places)
	e := state.Event{Time: h.now(), Object: state.ID{Kind: spec.KindContainerType, Name: string(t)}, Level: state.LevelWarn, Reason: "SetAside", Message: text}
	if err := h.store.Record(ctx, e); err != nil {
		h.logger.Warn("An event cannot be recorded.", "type", t, "error", err)
	}
	h.notice("aside "+string(t), text)
	return more
}
