package storageprovisioner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/storage"
)

// Settle returns what is declared with every filesystem where its data is. One
// that is declared to be elsewhere now has its data there all the same: it is
// kept, attached and removed as it was made, and Moved says what separates it
// from its declaration.
func (d Desired) Settle(o Observed) Desired {
	d.Entities = slices.Clone(d.Entities)
	volumes := map[string]string{}
	blind := maps.Clone(o.Blind)
	for _, e := range d.Entities {
		if e.Kind == spec.KindVolume {
			volumes[e.Name] = cmp.Or(e.Status.StampUID, e.UID)
			delete(blind, e.Source)
		}
	}
	for i := range d.Entities {
		e := &d.Entities[i]
		if o.missing(e) {
			if f, source := o.elsewhere(e); f != nil {
				e.moved(f, source, volumes)
			} else if len(blind) > 0 {
				e.Source = slices.Sorted(maps.Keys(blind))[0] // it may be there
			}
		}
	}
	return d
}

// missing says whether a filesystem that was made is not where it is declared.
func (o Observed) missing(e *Entity) bool {
	if e.Kind != spec.KindFilesystem || !e.Status.Created || o.Blind[e.Source] != nil {
		return false
	}
	return !slices.ContainsFunc(o.Filesystems[e.Source], func(f storage.Filesystem) bool {
		return f.ID == e.Name && (e.Filesystem.Volume == "" || onVolume(f) == "" || onVolume(f) == e.Filesystem.Volume)
	})
}

// elsewhere finds what was made of a filesystem when it was declared
// otherwise.
func (o Observed) elsewhere(e *Entity) (found *storage.Filesystem, source string) {
	for source, all := range o.Filesystems {
		for i, f := range all {
			own := f.Stamp.UID == cmp.Or(e.Status.StampUID, e.UID)
			if source == Managed {
				own = onVolume(f) != "" // it bears the stamp of its volume
			}
			if f.ID == e.Name && own {
				return &all[i], source
			}
		}
	}
	return nil, ""
}

// onVolume is the volume that a filesystem was declared to be on when it was
// made, as its source keeps it.
func onVolume(f storage.Filesystem) string {
	var record spec.FilesystemRecord
	if json.Unmarshal([]byte(f.Record), &record) != nil {
		return ""
	}
	return record.Filesystem.Volume
}

// moved makes the entity what was made of it.
func (e *Entity) moved(f *storage.Filesystem, source string, volumes map[string]string) {
	declared := e.place()
	var record spec.FilesystemRecord
	if json.Unmarshal([]byte(f.Record), &record) != nil || record.Filesystem.Provider != source && source != Managed {
		record = spec.FilesystemRecord{Filesystem: spec.Filesystem{Provider: source, Size: spec.Size(f.Size)}}
	}
	e.Filesystem, e.Record = record.Filesystem, f.Record
	e.Source, e.Size, e.Bears = source, int64(e.Filesystem.Size), ""
	if source == Managed {
		// The volume may have no record any more.
		e.Size, e.Bears = 0, cmp.Or(volumes[e.Filesystem.Volume], f.Stamp.UID)
	}
	e.Moved = &Change{Field: "provider", From: e.place(), To: declared}
}

// place says in words where a filesystem is.
func (e *Entity) place() string {
	if e.Filesystem.Volume != "" {
		return spec.KindVolume + "/" + e.Filesystem.Volume
	}
	return e.Source
}

// stays plans for a filesystem that is declared to be elsewhere.
func (e *Entity) stays() []Step {
	return []Step{{
		Action: ActionCreate, Changes: []Change{*e.Moved},
		Held: fmt.Sprintf("it is on %s and cannot move to %s: declare it as it was, or declare another one and move the data", e.Moved.From, e.Moved.To),
	}}
}

// lookElsewhere asks the sources of filesystems that nothing is declared of,
// where something that was made is not where it is declared.
func (s Sources) lookElsewhere(desired Desired, o Observed, list func(kind, source string)) {
	for i := range desired.Entities {
		if !o.missing(&desired.Entities[i]) {
			continue
		}
		for source := range s.Filesystems {
			if _, asked := o.Filesystems[source]; !asked {
				list(spec.KindFilesystem, source)
			}
		}
		return
	}
}
