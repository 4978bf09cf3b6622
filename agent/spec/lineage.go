package spec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Lineage identifies the store in the stamps of instances. An opening is the
// use of the store by one run of the agent. Mark() returns the text for a
// stamp, which holds the store's id, opening and revision. Of() compares such a
// mark with the store. E.g. a store restored from a backup finds marks with its
// id and a revision that it never had.
type Lineage struct {
	// ID is the store's id. A store that proves to be an older copy gets a new id
	// at the end of its recovery.
	ID string `json:"id,omitempty"`
	// Opening is a fresh id for each start of the agent.
	Opening string `json:"opening,omitempty"`
	// Opened is the store's revision when it was opened, before any write.
	Opened int64 `json:"opened,omitempty"`
	// Uncompared holds the container types whose instances were not yet compared
	// with the records since the agent started. For these, the revision in the
	// entry counts instead of Opened.
	Uncompared map[ContainerType]uncompared `json:"uncompared,omitempty"`
	// Predecessors maps the id of each lost store that this store replaces to a
	// revision. An instance that the lost store stamped up to this revision counts
	// as an instance of this store.
	Predecessors map[string]int64 `json:"former,omitempty"`
	// Old is true if the store proved to be an older copy and the recovery of the
	// missing records has not ended.
	Old bool `json:"old,omitempty"`

	// earlier holds uncompared.Openings of the type with which For() was called.
	earlier map[string]int64
}

// uncompared describes a container type whose instances wait for a comparison
// with the records.
type uncompared struct {
	// Opened is the store's revision at the first opening since the last
	// comparison.
	Opened int64 `json:"opened,omitempty"`
	// Openings maps the ids of the later openings, except for the current one, to
	// the store's revision at the end of each. An older copy of the store lacks
	// some of these openings, or has one that ends at a lower revision.
	Openings map[string]int64 `json:"openings,omitempty"`
	// Asked is true if the agent asked the hypervisor for its instances since the
	// agent started, and got no answer.
	Asked bool `json:"asked,omitempty"`
}

// maxOpenings limits uncompared.Openings, which grows e.g. after the removal of
// a hypervisor that was in use.
const maxOpenings = 100

// Open begins a new opening. opening is its id, and revision is the present
// revision of the store. types are the container types of the agent. known are
// the types that a provisioner may have worked for in the last opening. A type
// that was not compared in the last opening keeps its earlier revision, because
// its instances may still prove that the store is an older copy. Until the
// recovery of an older copy ends, only the opening's id changes.
func (l *Lineage) Open(opening string, revision int64, types, known []ContainerType) {
	last := l.Opening
	l.Opening = opening
	if l.Old {
		return
	}
	l.Opened = revision
	uncompared := make(map[ContainerType]uncompared, len(types))
	for _, t := range types {
		u, waits := l.Uncompared[t]
		u.Asked = false
		if !waits {
			u.Opened = revision
		} else if slices.Contains(known, t) {
			u.Openings = withOpening(u.Openings, last, revision)
		}
		uncompared[t] = u
	}
	l.Uncompared = uncompared
}

// withOpening returns a copy of the openings with one more, which ended at the
// revision end. It drops the oldest if there are more than maxOpenings.
// Instances of a dropped opening look like a proof of an older copy. This
// causes a recovery, which deletes nothing.
func withOpening(openings map[string]int64, opening string, end int64) map[string]int64 {
	openings = maps.Clone(openings)
	if openings == nil {
		openings = map[string]int64{}
	}
	openings[opening] = end
	if len(openings) > maxOpenings {
		oldest := opening
		for o := range openings {
			if openings[o] < openings[oldest] {
				oldest = o
			}
		}
		delete(openings, oldest)
	}
	return openings
}

// SetOld records that the store proved to be an older copy. Opened becomes the
// lowest revision that counts for any uncompared type.
func (l *Lineage) SetOld() {
	for _, u := range l.Uncompared {
		l.Opened = min(l.Opened, u.Opened)
	}
	l.Uncompared, l.Old = nil, true
}

// renew gives an older copy a new id after its recovery. The old id is added to
// Predecessors with the copy's revision. So the next start does not repeat the
// recovery, and harvest never deletes an instance with a later revision and no
// record.
func (l *Lineage) renew(id string) {
	l.Precede(l.ID, l.Opened)
	l.ID, l.Old = id, false
}

// Precede adds the id of a former store to Predecessors, with the revision
// unless the id has a higher revision there.
func (l *Lineage) Precede(id string, revision int64) {
	if l.Predecessors == nil {
		l.Predecessors = map[string]int64{}
	}
	l.Predecessors[id] = max(l.Predecessors[id], revision)
}

// For returns the lineage for the marks of a type's instances.
func (l Lineage) For(t ContainerType) Lineage {
	if u, waits := l.Uncompared[t]; waits {
		l.Opened, l.earlier = u.Opened, u.Openings
	}
	return l
}

// Origin says which store a mark belongs to.
type Origin int

// The values of Origin.
const (
	// OriginOurs means that this store or a former store stamped the instance, at
	// a revision that this store knows. Stamps of earlier versions have no mark
	// and count as ours.
	OriginOurs Origin = iota
	// OriginNewer means that the mark has this store's id and a revision that the
	// store never had. It proves that the store is an older copy.
	OriginNewer
	// OriginBeyond means that the mark has a former store's id and a revision
	// above the one in Predecessors.
	OriginBeyond
	// OriginAnother means that another store stamped the instance.
	OriginAnother
)

// Mark returns the text for a stamp made at the revision, e.g. "ID OPENING 42".
// It returns "" while the store has no id.
func (l Lineage) Mark(revision int64) string {
	if l.ID == "" {
		return ""
	}
	return fmt.Sprintf("%s %s %d", l.ID, l.Opening, revision)
}

// Of returns the origin of an instance's mark. Call Of() on the result of For()
// with the instance's type. While the store has no id, every mark counts as
// ours.
func (l Lineage) Of(mark string) Origin {
	if mark == "" || l.ID == "" {
		return OriginOurs
	}
	id, revision := SplitMark(mark)
	if id == l.ID {
		at := opening(mark)
		if end, earlier := l.earlier[at]; at == l.Opening || revision <= l.Opened || earlier && revision <= end {
			return OriginOurs
		}
		return OriginNewer
	}
	last, found := l.Predecessors[id]
	switch {
	case !found:
		return OriginAnother
	case revision > last:
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
