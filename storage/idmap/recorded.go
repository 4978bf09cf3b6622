package idmap

import (
	"encoding/json"
	"fmt"
)

// Recorded reads the map that LXD and Incus record in an instance's key
// volatile.idmap.next: a JSON list of ranges, of which those from the guest's id
// 0 make the map.
func Recorded(text string) (Map, error) {
	var ranges []struct {
		Isuid, Isgid           bool
		Hostid, Nsid, Maprange uint32
	}
	if err := json.Unmarshal([]byte(text), &ranges); err != nil {
		return Map{}, fmt.Errorf("cannot read the recorded id range of a guest: %w", err)
	}
	var m Map
	for _, r := range ranges {
		if r.Nsid != 0 || r.Maprange < leastIDs {
			continue
		}
		if r.Isuid {
			m.Users = Range{First: r.Hostid, Count: r.Maprange}
		}
		if r.Isgid {
			m.Groups = Range{First: r.Hostid, Count: r.Maprange}
		}
	}
	if m.Users.Count == 0 || m.Groups.Count == 0 {
		return Map{}, fmt.Errorf("cannot read the recorded id range of a guest: it has no %d users and groups from id 0", leastIDs)
	}
	return m, nil
}
