package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// Lineage identifies the store in the stamps of instances. Mark writes the
// store's id, opening and revision; Of compares such a mark with the store. For
// example, a restored backup meets instances with its id and a higher revision.
type Lineage struct {
	// ID is the store's id. A store that proves to be an older copy gets a new
	// id after the recovery.
	ID string `json:"id,omitempty"`
	// Opening is a fresh id for each start of the agent.
	Opening string `json:"opening,omitempty"`
	// Opened is the store's revision when it was opened.
	Opened int64 `json:"opened,omitempty"`
	// Former maps the ids of lost stores that this store replaces to the highest
	// revision at which their instances count as this store's.
	Former map[string]int64 `json:"former,omitempty"`
	// Old: the store proved to be an older copy and the recovery of the missing
	// records has not ended.
	Old bool `json:"old,omitempty"`
}

// Origin says which store a mark belongs to.
type Origin int

// The values of Origin.
const (
	// OriginOurs: this store or a former store stamped the instance, at a known
	// revision. Stamps of earlier versions have no mark and count as ours.
	OriginOurs Origin = iota
	// OriginNewer: this store's id with a revision that the store never had, which
	// proves the store an older copy.
	OriginNewer
	// OriginBeyond: a former store's id with a revision above that in Former.
	OriginBeyond
	// OriginAnother: another store stamped the instance.
	OriginAnother
)

// Mark returns the text for a stamp made at the revision, e.g. "ID OPENING 42";
// empty before the store has an id.
func (l Lineage) Mark(revision int64) string {
	if l.ID == "" {
		return ""
	}
	return fmt.Sprintf("%s %s %d", l.ID, l.Opening, revision)
}

// Of returns the origin of a mark. Before the store has an id every mark counts
// as ours.
func (l Lineage) Of(mark string) Origin {
	if mark == "" || l.ID == "" {
		return OriginOurs
	}
	id, revision := SplitMark(mark)
	if id == l.ID {
		if revision > l.Opened && opening(mark) != l.Opening {
			return OriginNewer
		}
		return OriginOurs
	}
	known, former := l.Former[id]
	switch {
	case !former:
		return OriginAnother
	case revision > known:
		return OriginBeyond
	}
	return OriginOurs
}

// SplitMark returns a mark's store id and revision. An unreadable mark has the
// id "?", which no store has.
func SplitMark(mark string) (id string, revision int64) {
	id, rest, _ := strings.Cut(mark, " ")
	_, number, found := strings.Cut(rest, " ")
	revision, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil || id == "" {
		return "?", 0
	}
	return id, revision
}

func opening(mark string) string {
	_, rest, _ := strings.Cut(mark, " ")
	opening, _, _ := strings.Cut(rest, " ")
	return opening
}
