package containersetup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/state"
)

// clearing is the state of the runs of Clear().
type clearing struct {
	// failures are the failed attempts that Clear() has handled, by machine.
	failures map[string]int
	// ranAt is the time of the last run after Prepared(). again is the time at which
	// the next run is due, or zero.
	ranAt, again time.Time
	// places are the paths of moved files. clearErr is the last error of Clear().
	places   []string
	clearErr error
}

// clear runs Clear() if that is due, and returns the time when Clear() is due
// next. Zero means after the next failure or removal. A removal counts because a
// failure before it may have come and gone between two looks.
func (w *Worker) clear(ctx context.Context, seen seen) time.Time {
	if w.Clear == nil {
		return time.Time{}
	}
	maps.DeleteFunc(w.failures, func(name string, count int) bool { return seen.failures[name] < count })
	now := w.Now()
	if seen.failedSince(w.failures) {
		w.again = reconcile.Earliest(w.again, w.ranAt.Add(w.ClearEvery))
	}
	if seen.removed {
		after := now.Add(w.RestEvery)
		if often := w.ranAt.Add(w.ClearEvery); often.After(after) {
			after = often
		}
		w.again = reconcile.Earliest(w.again, after)
	}
	if seen.needed && w.prepared && (w.again.IsZero() || now.Before(w.again)) {
		return w.again
	}
	if w.prepared {
		w.ranAt = now
	}
	places, more, err := w.Clear(ctx)
	w.reportMoved(ctx, places)
	if err != nil && (w.clearErr == nil || err.Error() != w.clearErr.Error()) {
		w.Logger.Warn("Files that a power cut may have left cannot be moved away.", "type", w.Type, "error", err)
	}
	w.failures, w.again, w.clearErr = seen.failures, time.Time{}, err
	if more || err != nil {
		w.again = w.Now().Add(w.RestEvery)
	}
	return w.again
}

// reportMoved reports in an event and a notice where the moved files are,
// including files that earlier calls moved.
func (w *Worker) reportMoved(ctx context.Context, places []string) {
	if len(places) == 0 {
		return
	}
	w.places = slices.DeleteFunc(append(w.places, places...), func(place string) bool {
		_, err := os.Lstat(place)
		return errors.Is(err, fs.ErrNotExist)
	})
	info, _ := w.Type.Info()
	text := fmt.Sprintf("files of containers that %s does not know, e.g. after a power cut, were moved away; remove them when you do not need them: %s",
		info.Hypervisor, strings.Join(w.places, ", "))
	w.event(ctx, state.LevelWarn, "SetAside", text)
	w.Notice("aside "+string(w.Type), text)
}
