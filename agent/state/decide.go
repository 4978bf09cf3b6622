package state

import (
	"bytes"
	"encoding/json"
	"reflect"
	"time"
	"unicode"
	"unicode/utf8"

	"hostler/internal/fault"
)

// change is the result of a write for its object. It is a new state, whose
// revision is not assigned yet, or the removal, or no change.
type change struct {
	object  Object
	removed bool
	none    bool
}

// decide computes the change that a write makes to the current object. cur is
// nil if the object is absent. newUID provides the uid of a created object
// whose write has none.
func decide(cur *Object, w Write, now time.Time, newUID func() string) (change, error) {
	if err := checkWrite(w); err != nil {
		return change{}, err
	}
	if w.Revision == 0 {
		return create(cur, w, now, newUID)
	}
	if err := compare(cur, w); err != nil {
		return change{}, err
	}
	if w.Delete {
		return change{object: *cur, removed: true}, nil
	}
	next := *cur
	if hasValue(w.Spec) {
		next.Spec = compact(w.Spec)
	}
	if w.Status != nil {
		next.Status = nil
		if hasValue(w.Status) {
			next.Status = compact(w.Status)
		}
	}
	if w.Life != "" {
		next.Life = w.Life
	}
	same := sameJSON(cur.Spec, next.Spec)
	if same && next.Life == cur.Life && sameJSON(cur.Status, next.Status) {
		return change{object: *cur, none: true}, nil
	}
	if !same || next.Life != cur.Life {
		next.Generation++
	}
	next.Updated = now
	return change{object: next}, nil
}

func create(cur *Object, w Write, now time.Time, newUID func() string) (change, error) {
	if cur != nil {
		return change{}, fault.New(fault.Conflict, "cannot create %s/%s: it exists", w.Kind, w.Name)
	}
	o := Object{
		ID: w.ID, UID: w.UID, Generation: 1, Life: Alive,
		Spec: json.RawMessage("{}"), Created: now, Updated: now,
	}
	if o.UID == "" {
		o.UID = newUID()
	}
	if w.Life != "" {
		o.Life = w.Life
	}
	if hasValue(w.Spec) {
		o.Spec = compact(w.Spec)
	}
	if hasValue(w.Status) {
		o.Status = compact(w.Status)
	}
	return change{object: o}, nil
}

func compare(cur *Object, w Write) error {
	switch {
	case cur == nil && w.Revision == AnyRevision:
		return fault.New(fault.NotFound, "cannot write %s/%s: it does not exist", w.Kind, w.Name)
	case cur == nil:
		return fault.New(fault.Conflict, "cannot write %s/%s at revision %d: it no longer exists", w.Kind, w.Name, w.Revision)
	case w.Revision != AnyRevision && w.Revision != cur.Revision:
		return fault.New(fault.Conflict, "cannot write %s/%s at revision %d: it is at revision %d",
			w.Kind, w.Name, w.Revision, cur.Revision)
	case w.UID != "" && w.UID != cur.UID:
		return fault.New(fault.Conflict, "cannot write %s/%s with the uid %s: its uid is %s", w.Kind, w.Name, w.UID, cur.UID)
	}
	return nil
}

func checkWrite(w Write) error {
	if err := checkID(w.ID); err != nil {
		return err
	}
	switch {
	case w.Revision < AnyRevision:
		return fault.New(fault.Invalid, "cannot write %s/%s: %d is not a revision", w.Kind, w.Name, w.Revision)
	case w.Delete && w.Revision == 0:
		return fault.New(fault.Invalid, "cannot delete %s/%s: a delete names a revision", w.Kind, w.Name)
	case w.Delete && (w.Spec != nil || w.Status != nil || w.Life != ""):
		return fault.New(fault.Invalid, "cannot delete %s/%s: a delete carries no other change", w.Kind, w.Name)
	case hasValue(w.Spec) && !json.Valid(w.Spec):
		return fault.New(fault.Invalid, "cannot write %s/%s: its spec is not JSON", w.Kind, w.Name)
	case hasValue(w.Status) && !json.Valid(w.Status):
		return fault.New(fault.Invalid, "cannot write %s/%s: its status is not JSON", w.Kind, w.Name)
	}
	switch w.Life {
	case "", Alive, Dying, Dead:
		return nil
	}
	return fault.New(fault.Invalid, "cannot write %s/%s: %q is not a life", w.Kind, w.Name, w.Life)
}

// maxName bounds kinds, names and tokens, in bytes.
const maxName = 256

func checkID(id ID) error {
	for _, s := range []string{id.Kind, id.Name} {
		if err := checkWord(s); err != nil {
			return err
		}
	}
	return nil
}

func checkWord(s string) error {
	if s == "" || len(s) > maxName || !utf8.ValidString(s) {
		return fault.New(fault.Invalid, "cannot name an object %.80q: a name has 1 to %d bytes of text", s, maxName)
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fault.New(fault.Invalid, "cannot name an object %.80q: a name has no control characters", s)
		}
	}
	return nil
}

var null = []byte("null")

// hasValue reports whether raw holds a value; nil and JSON's null do not.
func hasValue(raw json.RawMessage) bool {
	return raw != nil && !bytes.Equal(bytes.TrimSpace(raw), null)
}

// compact returns a copy of valid JSON without insignificant whitespace.
func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	_ = json.Compact(&b, raw)
	return b.Bytes()
}

// sameJSON reports whether two compact values are equal. The order of keys and
// the escaping of characters do not matter; e.g. "<" equals "\u003c".
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if a == nil || b == nil {
		return false
	}
	x, errX := decodeAny(a)
	y, errY := decodeAny(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func decodeAny(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}
