package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/storage/mounts"
)

// Clean removes the store and all other files by which the agent knows this
// host, so that an image of the host's disk starts with an empty record. The
// configuration stays. If objects are recorded, or if volumes or filesystems have
// data, Clean returns their names (KIND/NAME) and removes nothing. Errors:
// fault.Conflict if the agent runs; fault.NeedsOperator if records may be
// missing or if something is mounted on the files.
func Clean(ctx context.Context, o Options) (objects []string, err error) {
	if objects, err = recorded(ctx, o); err != nil || len(objects) > 0 {
		return objects, err
	}
	h := &host{paths: o.Paths, logger: o.Logger}
	there, err := h.storageSources().All(ctx)
	if err != nil {
		return nil, err
	}
	volumes, filesystems := there.Unknown(nil)
	for _, all := range volumes {
		for _, v := range all {
			objects = append(objects, spec.KindVolume+"/"+v.ID)
		}
	}
	for _, all := range filesystems {
		for _, f := range all {
			objects = append(objects, spec.KindFilesystem+"/"+f.ID)
		}
	}
	if len(objects) > 0 {
		slices.Sort(objects)
		return slices.Compact(objects), nil
	}
	return nil, h.forget()
}

// recorded returns the names of the recorded machines, networks, volumes and
// filesystems.
func recorded(ctx context.Context, o Options) (objects []string, err error) {
	store, report, err := state.Open(ctx, state.Options{Dir: o.Paths.StateDir, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	all, _, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	missing := report.Reason
	for _, object := range all {
		switch object.Kind {
		case spec.KindMachine, spec.KindNetwork, spec.KindVolume, spec.KindFilesystem:
			objects = append(objects, object.Kind+"/"+object.Name)
		case spec.KindHost:
			var record spec.HostRecord
			if err := object.Decode(&record, nil); err != nil {
				return nil, err
			}
			if record.Recovery.Phase == spec.RecoveryScanning {
				missing = "their recovery waits for " + strings.Join(record.Recovery.Pending, ", ")
			}
		}
	}
	if missing != "" {
		return nil, fault.New(fault.NeedsOperator, "cannot clean this host: records may be missing (%s); start hostlerd, which restores them, and clean again when `hostler status` reports none missing", missing)
	}
	return objects, nil
}

// forget removes the files by which the agent knows this host.
func (h *host) forget() error {
	stateDir, err := filepath.EvalSymlinks(h.paths.StateDir)
	if err != nil {
		return fmt.Errorf("cannot clean this host: %w", err)
	}
	// The agent of any state directory may hold the locks of the run directory.
	known, err := entries(stateDir, "lock", filepath.Base(h.paths.Volumes()), filepath.Base(h.paths.Filesystems("")), filepath.Base(h.paths.Rootfs("")), filepath.Base(h.paths.Mounts("")))
	if err != nil {
		return err
	}
	passing, err := entries(h.paths.RunDir, "lock")
	if err != nil {
		return err
	}
	known = append(known, passing...)
	table, err := mounts.Read("/proc")
	if err != nil {
		return err
	}
	for _, path := range known {
		if on := table.Of(func(m *mountinfo.Info) bool { return m.Mountpoint == path || strings.HasPrefix(m.Mountpoint, path+"/") }); len(on) > 0 {
			return fault.New(fault.NeedsOperator, "cannot clean this host: something is mounted on %s; unmount it first", on[0].Mountpoint)
		}
	}
	if err := state.Remove(stateDir); err != nil {
		return err
	}
	var errs []error
	for _, path := range append(known, h.paths.SysctlDropIn()) {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// entries returns the paths of a folder's entries, except for those that are
// named keep. A missing folder has none.
func entries(dir string, keep ...string) (paths []string, err error) {
	all, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range all {
		if !slices.Contains(keep, e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}
