// Package state is the store: revisioned objects with watches, an append-only
// event table and the journal of intents. The local store stands on SQLite;
// the agent's socket client is a second implementation, and both pass the
// suite in statetest.
package state

import (
	"context"
	"encoding/json"
	"time"
)

// ID names an object.
type ID struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Life is how far an object is on its way out.
type Life string

// The lives. An object is removed from the store by Write with Delete.
const (
	Alive Life = "alive"
	Dying Life = "dying"
	Dead  Life = "dead"
)

// Object is one kept object.
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

// Write is one change. Exactly one of the pointers or Delete is meaningful
// for a status write; a spec write may carry several.
type Write struct {
	ID
	// Revision is compared with the stored one: 0 creates (fault.Conflict if
	// the object exists), AnyRevision skips the comparison, any other must
	// match (fault.Conflict otherwise).
	Revision int64 `json:"revision"`
	// UID, when set on a create, becomes the object's uid; otherwise one is
	// made. On any other write a non-empty UID must match.
	UID    string          `json:"uid,omitempty"`
	Spec   json.RawMessage `json:"spec,omitempty"`
	Status json.RawMessage `json:"status,omitempty"`
	Life   Life            `json:"life,omitempty"`
	Delete bool            `json:"delete,omitempty"`
}

// AnyRevision in Write.Revision skips the comparison; the object must exist.
const AnyRevision = -1

// Mode says how several writes of one call belong together.
type Mode string

// The modes.
const (
	// Atomic: all writes happen or none; the first failure is the error.
	Atomic Mode = "atomic"
	// Each: every write stands alone, with a result of its own, in the order
	// asked.
	Each Mode = "each"
)

// Result answers one write. Err carries a kind of package fault.
type Result struct {
	Object Object
	Err    error
}

// Store holds the declared and the observed. A write that returned is durable
// (power cut included) and a write that changes nothing makes no revision.
type Store interface {
	// Get returns fault.NotFound for an absent object.
	Get(ctx context.Context, id ID) (Object, error)
	// List returns all objects of the kinds (all kinds if none is named) as of
	// one revision, ordered by kind and name, and that revision.
	List(ctx context.Context, kinds ...string) ([]Object, int64, error)
	// Write makes the changes. The error is about the call (or, with Atomic,
	// about the first failing write); with Each look at the results.
	Write(ctx context.Context, mode Mode, writes ...Write) ([]Result, error)
	// Watch sends ids: first all that exist (a batch that is sent even if it is
	// empty), then those that changed or were deleted, coalesced (a slow reader
	// sees one batch with each id once). Writers never wait for it. The channel
	// is closed when ctx ends or the watch is lost; a lost watch is an error
	// to the worker, never an empty world.
	Watch(ctx context.Context, kinds ...string) (<-chan []ID, error)
}

// Intent is a durable promise to make one object: written before the effect,
// ended after the result is recorded. Tokens are fresh per attempt.
type Intent struct {
	Token string `json:"token"`
	// Object and UID name what it is for.
	Object ID     `json:"object"`
	UID    string `json:"uid"`
	// Action is create, delete, …: a word for people.
	Action string    `json:"action"`
	Began  time.Time `json:"began"`
	// Owner is the container type whose worker began it, where that is known:
	// it outlives the machine's record.
	Owner string `json:"owner,omitempty"`
}

// Journal keeps the intents.
type Journal interface {
	// Begin is durable when it returns. The same token twice is fault.Conflict.
	Begin(ctx context.Context, in Intent) error
	// End forgets intents; absent ones are success.
	End(ctx context.Context, tokens ...string) error
	// Intents returns the open ones, oldest first.
	Intents(ctx context.Context) ([]Intent, error)
}

// Level of an event.
const (
	LevelInfo  = "info"
	LevelWarn  = "warning"
	LevelError = "error"
)

// Event is something that happened to an object.
type Event struct {
	// Seq is given by the store and only grows.
	Seq     int64     `json:"seq"`
	Time    time.Time `json:"time"`
	Object  ID        `json:"object"`
	UID     string    `json:"uid,omitempty"`
	Level   string    `json:"level"`
	Reason  string    `json:"reason"` // CamelCase word, like Created
	Message string    `json:"message"`
}

// EventQuery selects events.
type EventQuery struct {
	After  int64 // Seq greater than this
	Object *ID   // nil: all; an empty Name: all of the kind
	Limit  int   // 0: 1000
}

// EventLog keeps events; the oldest beyond a bound (100,000) are dropped.
type EventLog interface {
	Record(ctx context.Context, events ...Event) error
	Events(ctx context.Context, q EventQuery) ([]Event, error)
	// WatchEvents signals that there are new events to query; coalesced. The
	// first sign comes at once.
	WatchEvents(ctx context.Context) (<-chan struct{}, error)
}

// Backend is a whole store.
type Backend interface {
	Store
	Journal
	EventLog
}
