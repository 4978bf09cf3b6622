package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// asides clears a type's hypervisor of what a power cut left in the way of new
// machines.
type asides struct {
	host *host
	t    spec.ContainerType
	kept []string // the places of what was set aside
	told string   // why it could not be looked for, as was told last
}

// clear has it set aside and tells where it is kept. Where that fails, the
// machines that nothing is in the way of are worked on all the same. It says
// whether some of it had to be left for now.
func (a *asides) clear(ctx context.Context) (more bool) {
	d, err := a.host.driver(a.t)
	if err != nil {
		return false // there is nothing of it yet
	}
	cleaner, able := d.Broker.(containerbroker.Cleaner)
	if !able {
		return false
	}
	places, more, err := cleaner.SetAside(ctx)
	a.tell(ctx, places)
	switch {
	case err == nil:
		a.told = ""
	case err.Error() != a.told:
		a.told = err.Error()
		a.host.logger.Warn("What a power cut may have left in the way of machines cannot be set aside.", "type", a.t, "error", err)
	}
	return more || err != nil
}

// tell says where things are kept, those of earlier among them.
func (a *asides) tell(ctx context.Context, places []string) {
	if len(places) == 0 {
		return
	}
	a.kept = slices.DeleteFunc(append(a.kept, places...), func(place string) bool {
		_, err := os.Lstat(place)
		return errors.Is(err, fs.ErrNotExist)
	})
	text := fmt.Sprintf("files of containers that %s has forgotten, as after a power cut, were set aside; remove them when nothing in them is needed: %s", strings.ToUpper(string(a.t)), strings.Join(a.kept, ", "))
	e := state.Event{Time: a.host.now(), Object: state.ID{Kind: spec.KindContainerType, Name: string(a.t)}, Level: state.LevelWarn, Reason: "SetAside", Message: text}
	store := loggedEvents{a.host.store, a.host.logger}
	if err := store.Record(ctx, e); err != nil {
		a.host.logger.Warn("An event cannot be recorded.", "type", a.t, "error", err)
	}
	a.host.notice("aside "+string(a.t), text)
}
