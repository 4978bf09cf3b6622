package storageprovisioner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/internal/plan"
	"hostler/storage"
)

// PlaceAtData returns the declared storage with each filesystem at the place of
// its data. A filesystem that is now declared on another source or volume stays
// at the place where it was created. It is attached and removed at that place,
// and its field Moved holds the difference.
func (d Desired) PlaceAtData(o Observed) Desired {
	d.Entities = slices.Clone(d.Entities)
	volumes := map[string]string{}
	blind, places := maps.Clone(o.Blind), o.places()
	for _, e := range d.Entities {
		if e.Kind == spec.KindVolume {
			volumes[e.Name] = cmp.Or(e.Status.StampUID, e.UID)
			delete(blind, e.Source)
		}
	}
	for i := range d.Entities {
		e := &d.Entities[i]
		if o.missing(e, places) {
			if f, source := o.findData(e); f != nil {
				e.placeAt(f, source, volumes)
			} else if len(blind) > 0 {
				e.Source = slices.Sorted(maps.Keys(blind))[0] // the unobserved source may have the data
			}
		}
	}
	return d
}

// place identifies the filesystems of a name in a source. There may be several
// on volumes.
type place struct{ source, name string }

// places indexes the observed filesystems.
func (o Observed) places() map[place][]*storage.Filesystem {
	places := map[place][]*storage.Filesystem{}
	for source, all := range o.Filesystems {
		for i := range all {
			at := place{source, all[i].ID}
			places[at] = append(places[at], &all[i])
		}
	}
	return places
}

// missing reports whether a created filesystem is absent from its declared
// place.
func (o Observed) missing(e *Entity, places map[place][]*storage.Filesystem) bool {
	if e.Kind != spec.KindFilesystem || !e.Status.Created || o.Blind[e.Source] != nil {
		return false
	}
	return !slices.ContainsFunc(places[place{e.Source, e.Name}], func(f *storage.Filesystem) bool {
		return e.Filesystem.Volume == "" || onVolume(f) == "" || onVolume(f) == e.Filesystem.Volume
	})
}

// findData returns the observed filesystem and source with the data of a
// filesystem that is not at its declared place. It returns nil and "" if no
// source has the data.
func (o Observed) findData(e *Entity) (found *storage.Filesystem, source string) {
	for source, all := range o.Filesystems {
		for i := range all {
			f := &all[i]
			own := f.Stamp.UID == cmp.Or(e.Status.StampUID, e.UID)
			if source == Managed {
				own = onVolume(f) != "" // the stamp has the volume's uid
			}
			if f.ID == e.Name && own {
				return f, source
			}
		}
	}
	return nil, ""
}

// onVolume returns the volume that the source's copy of the filesystem's record
// declares, or "".
func onVolume(f *storage.Filesystem) string {
	var record spec.FilesystemRecord
	if json.Unmarshal([]byte(f.Record), &record) != nil {
		return ""
	}
	return record.Filesystem.Volume
}

// placeAt sets the entity's fields to the place of its data.
func (e *Entity) placeAt(f *storage.Filesystem, source string, volumes map[string]string) {
	declared := e.place()
	var record spec.FilesystemRecord
	if json.Unmarshal([]byte(f.Record), &record) != nil || record.Filesystem.Provider != source && source != Managed {
		record = spec.FilesystemRecord{Filesystem: spec.Filesystem{Provider: source, Size: spec.Size(f.Size)}}
	}
	e.Filesystem, e.Record = record.Filesystem, f.Record
	e.Source, e.Size, e.Bears = source, int64(e.Filesystem.Size), ""
	if source == Managed {
		// The volume may no longer have a record.
		e.Size, e.Bears = 0, cmp.Or(volumes[e.Filesystem.Volume], f.Stamp.UID)
	}
	e.Moved = &plan.Change{Field: "provider", From: e.place(), To: declared}
}

// place returns the name of a filesystem's place for messages, e.g. volume/data
// or tmpfs.
func (e *Entity) place() string {
	if e.Filesystem.Volume != "" {
		return spec.KindVolume + "/" + e.Filesystem.Volume
	}
	return e.Source
}

// heldMove returns the held step for a filesystem that is declared at another
// place than its data.
func (e *Entity) heldMove() []Step {
	return []Step{{
		Action: ActionCreate, Changes: []plan.Change{*e.Moved},
		Held: fmt.Sprintf("it is on %s and cannot move to %s: declare it as before, or declare another object and move the data", e.Moved.From, e.Moved.To),
	}}
}

// listOtherSources also lists the filesystem sources that no declaration uses,
// if a created filesystem is not at its declared place.
func (s Sources) listOtherSources(desired Desired, o Observed, list func(kind, source string)) {
	places := o.places()
	for i := range desired.Entities {
		if !o.missing(&desired.Entities[i], places) {
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
