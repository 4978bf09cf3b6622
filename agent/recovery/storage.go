package recovery

import (
	"context"
	"encoding/json"

	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/storageprovisioner"
)

// ScanStorage restores the missing records of volumes and filesystems that bear
// our stamp, as Scan() does for machines. It does so once in the life of a
// store and after a loss.
func (r *Recovery) ScanStorage(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.record(ctx)
	if err != nil || record.Scanned(spec.ScanStorage) {
		return err
	}
	there, err := r.Storage(ctx)
	if err != nil {
		return err
	}
	found, err := r.restore(ctx, func(objects []state.Object) ([]state.Write, int, error) {
		writes, found := recordsOfStorage(there, objects, r.Namespace())
		return writes, found, nil
	})
	if err != nil {
		return err
	}
	return r.done(ctx, spec.ScanStorage, found, "volumes and filesystems", nil)
}

// recordsOfStorage returns the writes that restore the missing records of
// volumes and filesystems from the copies beside their stamps, and the number
// of these objects. recordsOfStorage is pure.
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
			// The record is restored even if the data is gone. The status then reports
			// the loss, and no machine gets an empty volume instead.
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
