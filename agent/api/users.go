package api

import (
	"encoding/json"
	"fmt"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/agent/state"
)

// usersOf lists the objects (KIND/NAME, sorted) that stay and use a network,
// volume or filesystem; objects in going do not stay. It reads the records and
// not the documents, which may have been lost.
func (w *declaredState) usersOf(object string, going map[string]bool) ([]string, error) {
	if w.users == nil {
		users, err := w.allUsers()
		if err != nil {
			return nil, err
		}
		w.users = users
	}
	var staying []string
	for _, user := range w.users[object] {
		if w.lifeOf(user) == state.Alive && !going[user] {
			staying = append(staying, user)
		}
	}
	return staying, nil
}

// allUsers lists, by object, the machines and filesystems whose records refer
// to it, sorted.
func (w *declaredState) allUsers() (map[string][]string, error) {
	all := map[string][]string{}
	note := func(user string, used ...string) {
		for _, object := range used {
			all[object] = append(all[object], user)
		}
	}
	for name, k := range w.machines {
		note(spec.KindMachine+"/"+name, documents.Uses(k.record.Machine)...)
	}
	for id, g := range w.dependencies {
		if id.Kind != spec.KindFilesystem {
			continue
		}
		var r spec.FilesystemRecord
		if err := json.Unmarshal(g.now, &r); err != nil {
			return nil, fmt.Errorf("cannot read filesystem/%s: %w", id.Name, err)
		}
		if r.Filesystem.Volume != "" {
			note(spec.KindFilesystem+"/"+id.Name, spec.KindVolume+"/"+r.Filesystem.Volume)
		}
	}
	for object, users := range all {
		slices.Sort(users)
		all[object] = slices.Compact(users)
	}
	return all, nil
}
