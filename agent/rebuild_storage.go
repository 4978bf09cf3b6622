package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/storageprovisioner"
	"hostler/internal/fault"
)

// learnStorage compares the volumes and filesystems that bear our stamp with
// the records, once in the life of a store, as learn does for machines. It
// changes none of them.
func (h *host) learnStorage(ctx context.Context) error {
	h.learning.Lock()
	defer h.learning.Unlock()
	known, err := h.hostStatus(ctx)
	if err != nil || known.KnownStorage {
		return err
	}
	there, err := h.sources.All(ctx)
	if err != nil {
		return err
	}
	objects, _, err := h.store.List(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the store: %w", err)
	}
	writes, found := recordsOfStorage(there, objects, h.config().Namespace)
	if found > 0 {
		if _, err := h.store.Write(ctx, state.Atomic, writes...); err != nil {
			return fmt.Errorf("cannot write the found storage down: %w", err)
		}
		known.Notices = append(known.Notices, fmt.Sprintf("%d volumes and filesystems were recognised after the agent's records were lost", found))
		h.logger.Warn("Records were written again from stamps.", "type", "storage", "objects", found)
	}
	known.KnownStorage = true
	return h.writeHostStatus(ctx, known)
}

// unfound returns, after records were lost, the name of an existing hypervisor
// whose instances were not yet compared with the records, or "".
func (h *host) unfound(ctx context.Context) string {
	if !h.lost.Load() {
		return ""
	}
	known, err := h.hostStatus(ctx)
	if err != nil {
		return "the store"
	}
	for _, t := range h.types() {
		if slices.Contains(known.Known, t) {
			continue
		}
		if _, err := h.driver(t); !fault.Is(err, fault.NotReady) {
			return string(t)
		}
	}
	return ""
}

// recordsOfStorage returns the writes that restore the missing records of
// volumes and filesystems from the copies beside their stamps, and the number
// of these objects. Pure.
func recordsOfStorage(there storageprovisioner.Observed, objects []state.Object, namespace string) (writes []state.Write, found int) {
	byID := map[state.ID]state.Object{}
	for _, o := range objects {
		byID[o.ID] = o
	}
	declared := declare.Restored{Stored: byID}
	add := func(w state.Write, created bool) {
		w.Life = state.Alive
		w.Status = spec.Encode(spec.StorageStatus{State: spec.StoragePending, Message: "found by its stamp", Created: created})
		writes = append(writes, w)
		found++
	}
	missing := func(id state.ID, stamp, record string, into any) bool {
		_, taken := byID[id]
		return !taken && stamp == namespace && record != "" && json.Unmarshal([]byte(record), into) == nil
	}
	for source, volumes := range there.Volumes {
		for _, v := range volumes {
			var r spec.VolumeRecord
			id := state.ID{Kind: spec.KindVolume, Name: v.ID}
			if !missing(id, v.Stamp.Namespace, v.Record, &r) || r.Volume.Provider != source {
				continue
			}
			r.Force, r.RetryRequest, r.Restored, r.Held = false, 0, true, ""
			// Restore the record even if the data is gone: the status then reports the
			// loss, and no machine gets an empty volume instead.
			add(state.Write{ID: id, UID: v.Stamp.UID, Spec: spec.Encode(r)}, true)
			declared.Add(id, &r)
		}
	}
	for source, filesystems := range there.Filesystems {
		for _, f := range filesystems {
			var r spec.FilesystemRecord
			id := state.ID{Kind: spec.KindFilesystem, Name: f.ID}
			if !missing(id, f.Stamp.Namespace, f.Record, &r) {
				continue
			}
			managed := r.Filesystem.Volume != ""
			if managed != (source == storageprovisioner.Managed) || !managed && r.Filesystem.Provider != source {
				continue
			}
			r.Force, r.RetryRequest, r.Restored, r.Held = false, 0, true, ""
			w := state.Write{ID: id, Spec: spec.Encode(r)}
			if !managed { // a filesystem on a volume bears the volume's uid
				w.UID = f.Stamp.UID
			}
			add(w, f.Problem == "")
			declared.Add(id, &r)
		}
	}
	return append(writes, declared.Writes()...), found
}
