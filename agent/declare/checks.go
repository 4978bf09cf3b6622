package declare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// This file refuses documents because of existing objects or the host's limits.
// Package documents refuses those that do not fit other documents.

// checkSources refuses a document if its declaration came from another source.
// It completes the sources of docs from the stored declarations.
func (w *State) checkSources(docs []Document, replace bool) error {
	seen := map[string]string{}
	for i, doc := range docs {
		if other, twice := seen[doc.Name]; twice {
			return fault.New(fault.Invalid, "cannot apply: %s and %s are both the declaration %s; give either another `name:`", other, doc.Place, doc.Name)
		}
		seen[doc.Name] = doc.Place
		d := w.declarations[doc.Name]
		switch {
		case d == nil || d.record.Source == spec.SourceStamps:
		case isFile(d.record.Source) && same(d.record.Document, doc.Declaration):
			// The document equals that of the file, so the file keeps its declaration.
			// The request may still allow a held step.
			docs[i].Source, docs[i].Lines = d.record.Source, d.record.Lines
		case isFile(d.record.Source):
			return fault.New(fault.Conflict, "cannot apply %s: that declaration comes from %s; edit that file", doc.Name, d.record.Source)
		case doc.From == "":
			docs[i].From = d.record.From
		case d.record.From != "" && d.record.From != doc.From && !replace:
			return fault.New(fault.Conflict, "cannot apply %s: the declaration %s was applied from %s; give this document another `name:`, or replace that declaration with --replace",
				doc.From, doc.Name, d.record.From)
		}
	}
	return nil
}

// checkFixed refuses to change the fixed parts of existing objects.
func (w *State) checkFixed(doc Document) error {
	return cmp.Or(w.checkTypes(doc), w.checkPlaces(doc), w.checkRenames(doc))
}

// checkTypes refuses to change a machine's container type, because the existing
// instance would continue to run beside the new instance, with the same name,
// addresses and storage. All other fields can change, some with a restart or a
// recreate.
func (w *State) checkTypes(doc Document) error {
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(doc.Declaration.Machines)) {
		o, t := w.objects[spec.KindMachine+"/"+name], doc.Declaration.Machines[name].Type
		if o == nil || o.before == nil || o.life != state.Alive {
			continue
		}
		switch was, moves := o.was.(*spec.MachineRecord).Machine.Type, o.machine().Migration; {
		case was == t:
		case moves.Open() && moves.To == t:
			return fault.New(fault.NotReady, "cannot apply %s: machine/%s is being migrated to %s; the document can be applied afterwards", doc.Name, name, t)
		default:
			wrong = append(wrong, fmt.Sprintf("machine/%s is of type %s and cannot become %s; delete it first (`hostler delete machine/%s`) or give the new machine another name",
				name, was, t, name))
		}
	}
	return conflict(doc, wrong)
}

func conflict(doc Document, wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	return fault.New(fault.Conflict, "cannot apply %s: %s", doc.Name, fault.List(wrong, "; "))
}

// checkPlaces refuses to move a created filesystem, because an empty filesystem
// would replace its data. If the filesystem on the host already differs from
// its declaration, the user may correct the declaration. The storage worker
// does not move the filesystem.
func (w *State) checkPlaces(doc Document) error {
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(doc.Declaration.Filesystems)) {
		o := w.objects[spec.KindFilesystem+"/"+name]
		if o == nil || o.before == nil || o.life != state.Alive {
			continue
		}
		status, known := o.storageStatus()
		if !known {
			return fmt.Errorf("cannot read filesystem/%s", name)
		}
		was, now := placeOf(o.was.(*spec.FilesystemRecord).Filesystem), placeOf(doc.Declaration.Filesystems[name])
		if was != now && status.Created && !spec.Differs(status.Conditions) {
			wrong = append(wrong, fmt.Sprintf("filesystem/%s is on %s and cannot move to %s; declare another filesystem and move the data, or delete it first (`hostler delete filesystem/%s`)",
				name, was, now, name))
		}
	}
	return conflict(doc, wrong)
}

// placeOf returns the place of a filesystem: its volume or provider.
func placeOf(f spec.Filesystem) string {
	if f.Volume != "" {
		return spec.KindVolume + "/" + f.Volume
	}
	return f.Provider
}

// checkRenames refuses to change a machine's name and type at once. It also
// refuses to rename a machine with networks, storage or published ports,
// because their assignments use the machine's name.
func (w *State) checkRenames(doc Document) error {
	var wrong []string
	renames := w.renames(doc.Declaration)
	for _, name := range slices.Sorted(maps.Keys(renames)) {
		previous := renames[name]
		o, m := w.objects[spec.KindMachine+"/"+previous], doc.Declaration.Machines[name]
		was := o.machine().Machine
		switch {
		case w.making[o.before.UID]:
			return fault.New(fault.NotReady, "cannot apply %s: machine/%s is still being made; rename it when it is there", doc.Name, previous)
		case o.machine().Migration.Open():
			return fault.New(fault.NotReady, "cannot apply %s: machine/%s is being migrated; rename it afterwards", doc.Name, previous)
		case was.Type != m.Type:
			wrong = append(wrong, fmt.Sprintf("machine/%s is of type %s and cannot become machine/%s of type %s", previous, was.Type, name, m.Type))
		case !renamable(was):
			wrong = append(wrong, fmt.Sprintf("machine/%s has networks, storage or published ports and cannot be renamed to %s; keep its name", previous, name))
		}
	}
	return conflict(doc, wrong)
}

// checkCount refuses more machines than the host's configuration allows;
// existing machines stay even if they exceed the limit.
func (w *State) checkCount() error {
	most := w.most
	if most == 0 { // the record was written by an older agent
		most = spec.DefaultConfig().MaxMachines
	}
	if n := w.count(); n > most && n > w.began {
		return fault.New(fault.Invalid, "there would be %d machines, and this host takes at most %d; declare fewer, or raise max-machines in hostler.yaml", n, most)
	}
	return nil
}

// checkUsed refuses to remove an object that a declared machine or filesystem
// uses. before maps the objects to their declarations before the change.
func (w *State) checkUsed(before map[string]string) error {
	for _, object := range slices.Sorted(maps.Keys(before)) {
		if w.owners[object] != "" {
			continue
		}
		users := slices.DeleteFunc(w.usersOf(object, nil), func(u string) bool { return w.owners[u] == "" })
		if len(users) > 0 {
			return fault.New(fault.Conflict, "cannot remove %s, which no document would declare: it is used by %s (declaration %s); declare it, or apply %s without it",
				object, fault.List(users, ", "), w.owners[users[0]], users[0])
		}
	}
	return nil
}

// usersOf lists the objects that stay and use an object, sorted. Objects in
// going do not stay. It reads the records and not the documents, which may have
// been lost.
func (w *State) usersOf(object string, going map[string]bool) []string {
	if w.users == nil {
		w.users = map[string][]string{}
		for user, o := range w.objects {
			for _, used := range o.uses(o.now) {
				w.users[used] = append(w.users[used], user)
			}
		}
		for used, users := range w.users {
			slices.Sort(users)
			w.users[used] = slices.Compact(users)
		}
	}
	var staying []string
	for _, user := range w.users[object] {
		if w.objects[user].life == state.Alive && !going[user] {
			staying = append(staying, user)
		}
	}
	return staying
}
