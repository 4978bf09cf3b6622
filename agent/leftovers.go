package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"hostler/agent/logging"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
)

// leftoverMover moves files that a power cut left in a hypervisor's
// directories, and that block new machines, to another place.
type leftoverMover struct {
	host      *host
	t         spec.ContainerType
	places    []string // where the files are kept
	lastError string   // the last logged error
}

// clear sets the files aside and reports their new place in an event and a
// notice. On an error it logs a warning, and the machines that are not blocked
// go on. more says that some files remain for a later call.
func (a *leftoverMover) clear(ctx context.Context) (more bool) {
	d, err := a.host.driver(a.t)
	if err != nil {
		return false // there is no hypervisor yet
	}
	cleaner, able := d.Broker.(containerbroker.Cleaner)
	if !able {
		return false
	}
	places, more, err := cleaner.MoveLeftovers(ctx)
	a.report(ctx, places)
	switch {
	case err == nil:
		a.lastError = ""
	case err.Error() != a.lastError:
		a.lastError = err.Error()
		a.host.logger.Warn("Files that a power cut may have left cannot be moved away.", "type", a.t, "error", err)
	}
	return more || err != nil
}

// report reports where the files are, including those of earlier calls.
func (a *leftoverMover) report(ctx context.Context, places []string) {
	if len(places) == 0 {
		return
	}
	a.places = slices.DeleteFunc(append(a.places, places...), func(place string) bool {
		_, err := os.Lstat(place)
		return errors.Is(err, fs.ErrNotExist)
	})
	text := fmt.Sprintf("files of containers that %s does not know, e.g. after a power cut, were moved away; remove them when you do not need them: %s", strings.ToUpper(string(a.t)), strings.Join(a.places, ", "))
	e := state.Event{Time: a.host.now(), Object: state.ID{Kind: spec.KindContainerType, Name: string(a.t)}, Level: state.LevelWarn, Reason: "SetAside", Message: text}
	store := logging.Events{Backend: a.host.store, Log: a.host.logger}
	if err := store.Record(ctx, e); err != nil {
		a.host.logger.Warn("An event cannot be recorded.", "type", a.t, "error", err)
	}
	a.host.notice("aside "+string(a.t), text)
}
