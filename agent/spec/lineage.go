package spec

import (
	"fmt"
	"maps"
	"slices"
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
	// Opened is the store's revision when it was opened, before any write.
	Opened int64 `json:"opened,omitempty"`
	// Uncompared holds the container types whose instances were not yet compared
	// with the records since the agent started. The revision that counts for these
	// is that of an earlier opening.
	Uncompared map[ContainerType]Uncompared `json:"uncompared,omitempty"`
	// Predecessors maps the ids of lost stores that this store replaces to the
	// highest revision at which their instances count as this store's.
	Predecessors map[string]int64 `json:"former,omitempty"`
	// Old: the store proved to be an older copy and the recovery of the missing
	// records has not ended.
	Old bool `json:"old,omitempty"`

	// earlier holds Uncompared.Openings of the type for which For was called.
	earlier map[string]int64
}

// Uncompared describes a container type whose instances wait for a comparison
// with the records.
type Uncompared struct {
	// Opened is the store's revision at the first opening since the last
	// comparison.
	Opened int64 `json:"opened,omitempty"`
	// Openings maps the ids of the openings since then, without the current
	// opening, to the store's revision at their end. An older copy of the store
	// lacks the later openings or has an opening that ends earlier.
	Openings map[string]int64 `json:"openings,omitempty"`
}

// maxOpenings limits Uncompared.Openings, e.g. after the removal of a
// hypervisor that was in use.
const maxOpenings = 100

// Open begins a new opening of the store, which is at the revision. types are
// the container types of the agent. known are those that a provisioner may have
// worked for in the last opening. The revision of the last opening stays in
// force for each type that was not compared in it, since instances that prove
// an older copy may be among the instances of that type. An older copy changes
// nothing but the opening until its recovery ends.
func (l *Lineage) Open(opening string, revision int64, types, known []ContainerType) {
	last := l.Opening
	l.Opening = opening
	if l.Old {
		return
	}
	l.Opened = revision
	uncompared := make(map[ContainerType]Uncompared, len(types))
	for _, t := range types {
		u, waits := l.Uncompared[t]
		if !waits {
			u.Opened = revision
		} else if slices.Contains(known, t) {
			u.Openings = withOpening(u.Openings, last, revision)
		}
		uncompared[t] = u
	}
	l.Uncompared = uncompared
}

// withOpening returns the openings with one more, and without the oldest if
// there are too many. Instances of a forgotten opening look like a proof of an
// older copy, which leads to a recovery and to no deletion.
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

// Compared notes that the type's instances were compared with the records and
// none proves an older copy.
func (l *Lineage) Compared(t ContainerType) { delete(l.Uncompared, t) }

// SetOld notes that the store proved to be an older copy. Opened becomes the
// lowest revision at which an uncompared type was opened.
func (l *Lineage) SetOld() {
	for _, u := range l.Uncompared {
		l.Opened = min(l.Opened, u.Opened)
	}
	l.Uncompared, l.Old = nil, true
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
	// OriginOurs: this store or a former store stamped the instance, at a known
	// revision. Stamps of earlier versions have no mark and count as ours.
	OriginOurs Origin = iota
	// OriginNewer: this store's id with a revision that the store never had, which
	// proves the store an older copy.
	OriginNewer
	// OriginBeyond: a former store's id with a revision above that in
	// Predecessors.
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

// Of returns the origin of a mark of an instance; call it on the result of For
// with the instance's type. Before the store has an id every mark counts
// as ours.
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
