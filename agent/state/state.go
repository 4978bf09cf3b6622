// Package state is the store: objects with revisions and watches, an
// append-only event table and the journal of intents. The local store uses
// SQLite; the agent's socket client is a second implementation. Both pass the
// suite in statetest.
package state

import (
	"context"
	"encoding/json"
	"time"

	"hostler/internal/fault"
)

// ID names an object.
type ID struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Life is an object's stage between creation and removal.
type Life string

// The values of Life. There is none for a removed object, because a Write with
// Delete removes its record from the store.
const (
	Alive Life = "alive"
	Dying Life = "dying"
	Dead  Life = "dead"
)

// Object is a stored object. Its holders share Spec and Status and must not
// modify them.
type Object struct {
	ID
	UID string `json:"uid"`
	// Revision is the store revision of the last write to this object.
	Revision int64 `json:"revision"`
	// Generation counts changes of Spec and of Life.
	Generation int64           `json:"generation"`
	Life       Life            `json:"life"`
	Spec       json.RawMessage `json:"spec"`
	Status     json.RawMessage `json:"status,omitempty"`
	Created    time.Time       `json:"created"`
	Updated    time.Time       `json:"updated"`
}

// Decode reads the object's spec and status as JSON; either target may be nil. A
// missing half leaves its target unchanged. The error is fault.NeedsOperator.
func (o Object) Decode(record, status any) error {
	for _, half := range []struct {
		name string
		raw  json.RawMessage
		into any
	}{{"record", o.Spec, record}, {"status", o.Status, status}} {
		if half.into == nil || len(half.raw) == 0 {
			continue
		}
		if err := json.Unmarshal(half.raw, half.into); err != nil {
			return fault.New(fault.NeedsOperator, "cannot read the %s of %s/%s: %v", half.name, o.Kind, o.Name, err)
		}
	}
	return nil
}

// Write is a change of an object: either Delete, or new values for Spec,
// Status and Life in any combination. Nil and empty fields stay unchanged; the
// JSON null clears Status.
type Write struct {
	ID
	// Revision is compared with the stored revision: 0 creates (fault.Conflict if
	// the object exists), AnyRevision skips the comparison, any other value must
	// match (fault.Conflict if it does not).
	Revision int64 `json:"revision"`
	// UID becomes the uid of a created object; if it is empty, the store makes a
	// uid. In any other write a non-empty UID must match.
	UID    string          `json:"uid,omitempty"`
	Spec   json.RawMessage `json:"spec,omitempty"`
	Status json.RawMessage `json:"status,omitempty"`
	Life   Life            `json:"life,omitempty"`
	Delete bool            `json:"delete,omitempty"`
	// Relaxed lets the write return before it is durable. It becomes durable with
	// the next other change, within relaxedTime, or with Sync. A crash of the
	// agent loses nothing; a power cut may lose the latest relaxed changes, each
	// as if it had never been made. E.g. the progress of an operation is written
	// relaxed.
	Relaxed bool `json:"relaxed,omitempty"`
}

// relaxedTime is the longest time until a relaxed change is durable.
const relaxedTime = time.Second

// AnyRevision in Write.Revision skips the comparison; the object must exist.
const AnyRevision = -1

// Mode says whether the writes of a call depend on each other.
type Mode string

// The values of Mode.
const (
	// Atomic means that all writes happen or none. The error is that of the first
	// failed write.
	Atomic Mode = "atomic"
	// Each means that every write succeeds or fails on its own and has its own
	// result, in the order of the writes.
	Each Mode = "each"
)

// Result is the outcome of a write. Err carries a kind of package fault.
type Result struct {
	Object Object
	Err    error
}

// Store holds declared specs and observed statuses. A returned write is
// durable, even after a power cut, unless it is relaxed. A write that changes
// nothing makes no revision.
type Store interface {
	// Get returns fault.NotFound for an absent object.
	Get(ctx context.Context, id ID) (Object, error)
	// List returns all objects of the kinds (of all kinds if kinds is empty) as of
	// a single revision, ordered by kind and name, and that revision.
	List(ctx context.Context, kinds ...string) ([]Object, int64, error)
	// Write makes the changes. The error concerns the call or, with Atomic, the
	// first failed write; with Each, check the results.
	Write(ctx context.Context, mode Mode, writes ...Write) ([]Result, error)
	// Watch sends ids: first all existing objects (this batch is sent even if it
	// is empty), then changed and deleted objects. Changes are coalesced: a slow
	// reader gets one batch with each id once. Writers never wait for readers. The
	// channel is closed when ctx ends or the watch is lost. A worker must treat a
	// lost watch as an error, never as an empty store.
	Watch(ctx context.Context, kinds ...string) (<-chan []ID, error)
}

// Intent is a durable note that an effect on one object is about to be made. It
// is written before the effect and ended after the result is recorded. Each
// attempt has a new token.
type Intent struct {
	Token string `json:"token"`
	// Object and UID identify the object.
	Object ID     `json:"object"`
	UID    string `json:"uid"`
	// Action is a word for the user, e.g. create or delete.
	Action string    `json:"action"`
	Began  time.Time `json:"began"`
	// Owner is the container type whose worker began the effect, if known. It is
	// kept here because the machine's record may be gone before the intent ends.
	Owner string `json:"owner,omitempty"`
}

// Journal keeps the intents.
type Journal interface {
	// Begin stores an intent, which is durable when Begin() returns. It returns
	// fault.Conflict if the token is in use.
	Begin(ctx context.Context, in Intent) error
	// End removes intents. The removal is relaxed as in Write, because an intent
	// that comes back after a power cut is only looked at again. An absent intent
	// is no error.
	End(ctx context.Context, tokens ...string) error
	// Intents returns the open intents, oldest first.
	Intents(ctx context.Context) ([]Intent, error)
	// Sync makes all earlier changes durable. Call it before an effect that must
	// not outlive a relaxed change, e.g. a stamp with a revision.
	Sync(ctx context.Context) error
}

// Levels of an event.
const (
	LevelInfo  = "info"
	LevelWarn  = "warning"
	LevelError = "error"
)

// Event is something that happened to an object.
type Event struct {
	// Seq is assigned by the store and only grows.
	Seq     int64     `json:"seq"`
	Time    time.Time `json:"time"`
	Object  ID        `json:"object"`
	UID     string    `json:"uid,omitempty"`
	Level   string    `json:"level"`
	Reason  string    `json:"reason"` // CamelCase word, e.g. Created
	Message string    `json:"message"`
	// After a failure, Attempt is the number of the next retry. There are at most
	// Limit retries. NextRetry is the time of the next retry. If Attempt is 0, no
	// counted retry follows.
	Attempt   int        `json:"attempt,omitempty"`
	Limit     int        `json:"limit,omitempty"`
	NextRetry *time.Time `json:"next-retry,omitempty"`
}

// EventQuery selects events.
type EventQuery struct {
	After  int64 // Seq greater than this
	Before int64 // Seq less than this; 0 means no bound
	Object *ID   // nil means all; an empty Name means all of the kind
	Limit  int   // 0 means 1000
	Newest bool  // the newest events within Limit, not the oldest
}

// EventLog keeps the latest events, by default 100,000.
type EventLog interface {
	// Record appends events, relaxed as in Write.
	Record(ctx context.Context, events ...Event) error
	Events(ctx context.Context, q EventQuery) ([]Event, error)
	// WatchEvents signals that there are new events to query. Signals are
	// coalesced; the first signal comes at once.
	WatchEvents(ctx context.Context) (<-chan struct{}, error)
}

// Backend is a complete store.
type Backend interface {
	Store
	Journal
	EventLog
}
