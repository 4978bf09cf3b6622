package declare

import (
	"hostler/agent/spec"
	"hostler/agent/spec/documents"
)

// record is the record of an object of any kind.
type record interface {
	Head() *spec.Header
	Consent(impacts []string)
}

// kind describes a kind of declared objects. All kinds are declared, allowed,
// retried, held, planned and removed alike; a kind holds the differences.
type kind struct {
	empty func() record
	copy  func(record) record
	// alike reports whether the declared parts of two records are equal. take
	// copies the declared part.
	alike func(a, b record) bool
	take  func(to, from record)
	// declared returns a declaration's objects of the kind, by name, as records
	// with an empty header; add adds an object to a declaration.
	declared func(spec.Declaration) map[string]record
	add      func(to *spec.Declaration, name string, r record)
	// uses lists the objects (KIND/NAME) that an object refers to.
	uses func(record) []string
	// retains reports whether the removal of an object keeps its instance or data.
	retains func(record) bool
	traits
}

// traits are the properties of a kind.
type traits struct {
	// allows is true if steps may wait for consent to a restart or a recreate.
	allows bool
	// yields is true if an undeclared object does not count as existing when its
	// removal needs no consent.
	yields bool
}

// kinds are the kinds of declared objects.
var kinds = map[string]kind{
	spec.KindMachine: kindOf(
		func(d *spec.Declaration) *map[string]spec.Machine { return &d.Machines },
		func(r *spec.MachineRecord) *spec.Machine { return &r.Machine },
		documents.Uses, func(m spec.Machine) bool { return m.Retain }, traits{allows: true, yields: true}),
	spec.KindNetwork: kindOf(
		func(d *spec.Declaration) *map[string]spec.Network { return &d.Networks },
		func(r *spec.NetworkRecord) *spec.Network { return &r.Network },
		func(spec.Network) []string { return nil }, func(spec.Network) bool { return false }, traits{allows: true}),
	spec.KindVolume: kindOf(
		func(d *spec.Declaration) *map[string]spec.Volume { return &d.Volumes },
		func(r *spec.VolumeRecord) *spec.Volume { return &r.Volume },
		func(spec.Volume) []string { return nil }, func(v spec.Volume) bool { return v.Retain }, traits{}),
	spec.KindFilesystem: kindOf(
		func(d *spec.Declaration) *map[string]spec.Filesystem { return &d.Filesystems },
		func(r *spec.FilesystemRecord) *spec.Filesystem { return &r.Filesystem },
		volumeOf, func(f spec.Filesystem) bool { return f.Retain }, traits{}),
}

// volumeOf returns a list with the volume of a filesystem, or nil if it has
// none.
func volumeOf(f spec.Filesystem) []string {
	if f.Volume == "" {
		return nil
	}
	return []string{spec.KindVolume + "/" + f.Volume}
}

// kindOf returns the kind with declared values of type V and records of type R.
// in() returns the values in a declaration, and of() the value in a record.
func kindOf[V, R any, P interface {
	*R
	record
}](in func(*spec.Declaration) *map[string]V, of func(P) *V, uses func(V) []string, retains func(V) bool, t traits) kind {
	value := func(r record) *V { return of(r.(P)) }
	return kind{
		empty: func() record { return P(new(R)) },
		copy: func(r record) record {
			c := *r.(P)
			return P(&c)
		},
		alike: func(a, b record) bool { return same(value(a), value(b)) },
		take:  func(to, from record) { *value(to) = *value(from) },
		declared: func(d spec.Declaration) map[string]record {
			all := map[string]record{}
			for name, v := range *in(&d) {
				r := P(new(R))
				*of(r) = v
				all[name] = r
			}
			return all
		},
		add: func(to *spec.Declaration, name string, r record) {
			if *in(to) == nil {
				*in(to) = map[string]V{}
			}
			(*in(to))[name] = *value(r)
		},
		uses:    func(r record) []string { return uses(*value(r)) },
		retains: func(r record) bool { return retains(*value(r)) },
		traits:  t,
	}
}
