package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// Lineage tells the instances that this store's agent stamped from those of
// another store, and from those stamped after the copy was made that this store
// is: stamps bear a mark (Mark), and Of compares it.
type Lineage struct {
	// ID is the store's; an older copy that was found out gets a new one.
	ID string `json:"id,omitempty"`
	// Opening tells the present opening of the store from all others.
	Opening string `json:"opening,omitempty"`
	// Opened is the store's revision when it was opened.
	Opened int64 `json:"opened,omitempty"`
	// Former are the stores in whose place this one stands, by their ids, each
	// with the highest revision that is taken for this store's.
	Former map[string]int64 `json:"former,omitempty"`
	// Old: the store was found to be an older copy, and what it does not know
	// was not all found yet.
	Old bool `json:"old,omitempty"`
}

// Origin says whose a mark is.
type Origin int

// The origins.
const (
	// OriginOurs: of this store, or of one in whose place it stands, and
	// no newer than what is known of it. A stamp of an earlier version, without a
	// mark, is ours.
	OriginOurs Origin = iota
	// OriginNewer: of this store, at a revision that it never had. It proves
	// that the store is an older copy.
	OriginNewer
	// OriginBeyond: of a former store, at a revision above that taken for ours.
	OriginBeyond
	// OriginAnother: of another store.
	OriginAnother
)

// Mark is what a stamp made at a revision bears: the store, its opening and
// the revision; empty before the store has an id.
func (l Lineage) Mark(revision int64) string {
	if l.ID == "" {
		return ""
	}
	return fmt.Sprintf("%s %s %d", l.ID, l.Opening, revision)
}

// Of says whose a mark is. Before the store has an id every mark is its own.
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

// SplitMark returns a mark's store and revision; one that cannot be read is of
// the store "?", which there is not.
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
