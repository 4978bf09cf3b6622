package documents

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/internal/fault"
)

// check returns an error for each new document that is invalid together with
// the others.
func (s *set) check(r Request) map[string]error {
	wrong := map[string]error{}
	for name, objects := range s.rivals {
		if s.new[name] {
			slices.Sort(objects)
			wrong[name] = s.conflict(name, objects)
		}
	}
	if len(wrong) > 0 {
		return wrong
	}
	declared, where := s.union(r)
	dropped := s.dropped(r)
	for _, name := range s.order(r) {
		doc := s.docs[name]
		_, err := spec.ParseAmong(doc.Place, doc.Text, spec.Others{
			Declared: declared.referable, Dropped: dropped[name], Claims: declared.claims, Where: where, Open: r.Open,
		})
		if err != nil {
			wrong[name] = err
			if r.Together && len(wrong) == maxWrong {
				break
			}
			continue
		}
		declared.claims.Add(doc.Declaration)
	}
	if len(wrong) > 0 {
		return wrong
	}
	return s.checkUsers(r, declared, where)
}

// dropped returns, by document, the objects that it declared before and that no
// document declares now. The document itself must not refer to them.
func (s *set) dropped(r Request) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for object, owner := range r.Owners {
		if !s.new[owner] || s.owners[object] != "" {
			continue
		}
		if all[owner] == nil {
			all[owner] = map[string]bool{}
		}
		all[owner][object] = true
	}
	return all
}

// conflict returns the error for a document that declares objects differently
// from the documents that own them.
func (s *set) conflict(name string, objects []string) error {
	texts := make([]string, len(objects))
	for i, object := range objects {
		owner := s.owners[object]
		stays := ", which stays in force,"
		if s.new[owner] {
			stays = ""
		}
		texts[i] = fmt.Sprintf("%s is declared differently at %s%s and at %s; make both equal, or remove one",
			object, s.docs[owner].at(object), stays, s.docs[name].at(object))
	}
	return fault.New(fault.Conflict, "%s", fault.List(texts, "; "))
}

// at returns the place where a document declares an object, e.g. web.yaml:4.
func (d Document) at(object string) string {
	place := cmp.Or(d.From, d.Place, "the declaration "+d.Name)
	if line := d.Lines[object]; line > 0 {
		return fmt.Sprintf("%s:%d", place, line)
	}
	return place
}

// unions are the objects of several documents.
type unions struct {
	// referable are the objects that documents may refer to.
	referable spec.Declaration
	// claims are the ports, addresses and storage that are already taken.
	claims spec.Claims
}

// union joins the documents. where maps each object to its place in messages.
// No document may refer to a held machine. The machine keeps its ports unless a
// document renames it.
func (s *set) union(r Request) (u unions, where map[string]string) {
	where = map[string]string{}
	var owned []string
	for object, owner := range s.owners {
		if s.docs[owner].Rank != Leaving { // existing objects of leaving documents are held
			owned = append(owned, object)
		}
	}
	held := Without(r.Existing, owned...)
	for _, doc := range s.docs {
		for _, m := range doc.Declaration.Machines {
			delete(held.Machines, m.RenamedFrom)
		}
	}
	used := map[string]bool{}
	note := func(machines map[string]spec.Machine) {
		for _, m := range machines {
			for _, object := range Uses(m) {
				used[object] = true
			}
		}
	}
	note(held.Machines)
	for _, doc := range s.docs {
		note(doc.Declaration.Machines)
	}
	for _, object := range held.Objects() {
		where[object] = "held, because no document declares it; allow its removal first"
	}
	addAll(&u.referable, held)
	u.referable.Machines = map[string]spec.Machine{}
	// An unused network is removed at once, which frees its bridge.
	maps.DeleteFunc(held.Networks, func(name string, _ spec.Network) bool { return !used[spec.KindNetwork+"/"+name] })
	u.claims.Add(held)
	for _, name := range slices.Sorted(maps.Keys(s.docs)) {
		doc := s.docs[name]
		for _, object := range doc.Declaration.Objects() {
			if s.owners[object] == name && doc.Rank != Leaving {
				where[object] = doc.at(object)
			}
		}
		addAll(&u.referable, doc.Declaration)
		if !s.new[name] && doc.Rank != Leaving {
			u.claims.Add(doc.Declaration)
		}
	}
	return u, where
}

// order lists the new documents. Documents with a former version in force come
// first, so that they keep their ports and bridges.
func (s *set) order(r Request) []string {
	var names []string
	for name, fresh := range s.new {
		if fresh {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		_, knownA := r.InForce[a]
		_, knownB := r.InForce[b]
		return cmp.Or(truth(knownB)-truth(knownA), cmp.Compare(a, b))
	})
	return names
}

// checkUsers finds the new documents that change an object in a way that breaks
// another document's machine or filesystem, e.g. a network whose new subnet has
// no room for a declared address.
func (s *set) checkUsers(r Request, all unions, where map[string]string) map[string]error {
	changed := map[string]string{} // maps an object to the new document that changes the object
	for name := range s.new {
		if !s.new[name] {
			continue
		}
		for _, object := range s.docs[name].Declaration.Objects() {
			before := objectIn(r.Existing, object)
			if before != nil && !same(before, objectIn(s.docs[name].Declaration, object)) {
				changed[object] = name
			}
		}
	}
	wrong := map[string]error{}
	for _, name := range slices.Sorted(maps.Keys(s.docs)) {
		doc := s.docs[name]
		if s.new[name] || doc.Rank == Leaving {
			continue
		}
		users := usersIn(doc.Declaration, changed)
		for _, user := range slices.Sorted(maps.Keys(users)) {
			culprit := users[user]
			if wrong[culprit] != nil {
				continue
			}
			one := alone(doc.Declaration, user)
			_, err := spec.ParseAmong(name, spec.EncodeYAML(one), spec.Others{Declared: all.referable, Claims: all.claims, Where: where})
			var es spec.Errors
			if errors.As(err, &es) {
				wrong[culprit] = fault.New(fault.Conflict, "%s at %s would become invalid: %s", user, doc.at(user), es[0].Message)
			}
		}
	}
	return wrong
}

// usersIn maps each object of a declaration that uses a changed object to the
// document that changes the used object.
func usersIn(d spec.Declaration, changed map[string]string) map[string]string {
	users := map[string]string{}
	note := func(user, used string) {
		if doc := changed[used]; doc != "" {
			users[user] = doc
		}
	}
	for name, m := range d.Machines {
		for _, used := range Uses(m) {
			note(spec.KindMachine+"/"+name, used)
		}
	}
	for name, f := range d.Filesystems {
		note(spec.KindFilesystem+"/"+name, spec.KindVolume+"/"+f.Volume)
	}
	return users
}

// Uses lists the networks, volumes and filesystems (KIND/NAME) of a machine.
func Uses(m spec.Machine) (used []string) {
	for _, nic := range m.Networks {
		used = append(used, spec.KindNetwork+"/"+nic.Network)
	}
	for _, a := range m.Storage {
		if a.Volume != "" {
			used = append(used, spec.KindVolume+"/"+a.Volume)
		} else {
			used = append(used, spec.KindFilesystem+"/"+a.Filesystem)
		}
	}
	return used
}

// alone returns the declaration with a single object.
func alone(d spec.Declaration, object string) spec.Declaration {
	kind, name, _ := strings.Cut(object, "/")
	d.Machines, d.Networks = onlyOf(d.Machines, kind == spec.KindMachine, name), onlyOf(d.Networks, kind == spec.KindNetwork, name)
	d.Volumes, d.Filesystems = onlyOf(d.Volumes, kind == spec.KindVolume, name), onlyOf(d.Filesystems, kind == spec.KindFilesystem, name)
	return d
}

// onlyOf returns the map with a single entry. It returns nil if the entry is
// absent or kind is false.
func onlyOf[V any](all map[string]V, kind bool, name string) map[string]V {
	if v, there := all[name]; kind && there {
		return map[string]V{name: v}
	}
	return nil
}
