package reconcile

import (
	"fmt"
	"maps"
	"reflect"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/failpoint"
)

// Configure calls use() with the host's record, which holds the configuration.
// It does nothing if the record is not among the objects.
func Configure(objects []state.Object, use func(spec.HostRecord)) error {
	for _, o := range objects {
		if o.Kind != spec.KindHost {
			continue
		}
		var record spec.HostRecord
		if err := o.Decode(&record, nil); err != nil {
			return err
		}
		use(record)
	}
	return nil
}

// Cache keeps decoded objects by uid, since most objects do not change between
// two passes. Callers must not modify the decoded values; a build with crash points
// panics if one did.
type Cache[T any] map[string]cached[T]

type cached[T any] struct {
	revision int64
	value    T
}

// Decode returns the cached value of an unchanged object, or else the result of
// decode().
func (c Cache[T]) Decode(o state.Object, decode func(state.Object) (T, error)) (T, error) {
	if was, known := c[o.UID]; known && was.revision == o.Revision {
		if failpoint.Enabled {
			mustBe(o, was.value, decode)
		}
		return was.value, nil
	}
	v, err := decode(o)
	if err == nil && o.Revision != 0 {
		c[o.UID] = cached[T]{o.Revision, v}
	}
	return v, err
}

func mustBe[T any](o state.Object, cached T, decode func(state.Object) (T, error)) {
	if v, err := decode(o); err != nil || !reflect.DeepEqual(v, cached) {
		panic(fmt.Sprintf("the cached value of %s/%s was modified: %+v, want %+v", o.Kind, o.Name, cached, v))
	}
}

// Keep drops the cached values of all objects that are not in objects.
func (c Cache[T]) Keep(objects []state.Object) {
	there := make(map[string]bool, len(objects))
	for _, o := range objects {
		there[o.UID] = true
	}
	maps.DeleteFunc(c, func(uid string, _ cached[T]) bool { return !there[uid] })
}
