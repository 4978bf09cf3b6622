package api

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
)

// wantAlive checks that the machines are alive with these uids and belong to
// the declaration.
func (b *bench) wantAlive(t *testing.T, declaration string, uids map[string]string, machines ...string) {
	t.Helper()
	for _, m := range machines {
		o, rec := b.record(t, m)
		if o.Life != state.Alive || rec.Declaration != declaration || rec.Held != "" {
			t.Errorf("%s is %s of %q, held %q; want it declared by %q", m, o.Life, rec.Declaration, rec.Held, declaration)
		}
		if uids[m] == "" {
			uids[m] = o.UID
		} else if uids[m] != o.UID {
			t.Errorf("%s was made anew", m)
		}
	}
}

// Objects that move between files stay the same objects, e.g. when files are
// renamed, split or merged, or swap their machines.
func TestObjectsMoveBetweenFiles(t *testing.T) {
	b := newBench(t)
	uids := map[string]string{}
	b.files(t, map[string]string{"a.yaml": yaml("one", "two")})
	b.runs(t, "one", "two")
	b.wantAlive(t, "a", uids, "one", "two")
	for _, step := range []struct {
		name     string
		files    map[string]string
		one, two string
	}{
		{"renamed", map[string]string{"b.yaml": yaml("one", "two")}, "b", "b"},
		{"renamed, with a name", map[string]string{"c.yaml": "name: b\n" + yaml("one", "two")}, "b", "b"},
		{"another name in the file", map[string]string{"c.yaml": "name: site\n" + yaml("one", "two")}, "site", "site"},
		{"split", map[string]string{"d.yaml": yaml("one"), "e.yaml": yaml("two")}, "d", "e"},
		{"swapped", map[string]string{"d.yaml": yaml("two"), "e.yaml": yaml("one")}, "e", "d"},
		{"moved to the first", map[string]string{"d.yaml": yaml("one", "two"), "e.yaml": "version: 1\n"}, "d", "d"},
		{"moved to the last", map[string]string{"d.yaml": "version: 1\n", "e.yaml": yaml("one", "two")}, "e", "e"},
		{"copied", map[string]string{"d.yaml": yaml("one"), "e.yaml": yaml("one", "two")}, "e", "e"},
		{"the original gone", map[string]string{"d.yaml": yaml("one"), "f.yaml": yaml("two")}, "d", "f"},
	} {
		a := b.files(t, step.files)
		if len(a.Refused)+len(a.Undeclared) != 0 {
			t.Errorf("%s: refused %v, kept %v", step.name, a.Refused, a.Undeclared)
		}
		b.wantAlive(t, step.one, uids, "one")
		b.wantAlive(t, step.two, uids, "two")
	}
	if got := b.store.names(spec.KindDeclaration); !slices.Equal(got, []string{"d", "f"}) {
		t.Errorf("declarations %v", got)
	}
}

// While a file cannot be read or put in force, nothing is removed: neither its
// own objects nor those of a vanished file, since the unreadable file may
// declare them.
func TestNothingIsRemovedWhileAFileIsRefused(t *testing.T) {
	for name, bad := range map[string]func(f *declare.Folder){
		"unreadable": func(f *declare.Folder) { f.Files[folder+"b.yaml"] = declare.File{Err: errors.New("permission denied")} },
		"a typing error": func(f *declare.Folder) {
			f.Files[folder+"b.yaml"] = declare.File{Content: []byte("version: 1\nmachine: {}\n")}
		},
		"a reference to nothing": func(f *declare.Folder) {
			f.Files[folder+"b.yaml"] = declare.File{Content: []byte(strings.Replace(yaml("two"), "debian/12}", "debian/12, networks: {eth0: {network: nope}}}", 1))}
		},
	} {
		b := newBench(t)
		uids := map[string]string{}
		b.files(t, map[string]string{"a.yaml": yaml("one", "two", "fresh"), "c.yaml": yaml("three")})
		b.runs(t, "one", "two")
		b.wantAlive(t, "a", uids, "one", "two", "fresh")
		obey(t, b)
		// The content of a.yaml moved to b.yaml, and c.yaml gained a machine.
		a := b.files(t, map[string]string{"c.yaml": yaml("three", "four")}, bad)
		if a.Refused[folder+"b.yaml"] == nil {
			t.Errorf("%s: refused %v", name, a.Refused)
		}
		b.wantAlive(t, "c", uids, "three", "four")
		for _, m := range []string{"one", "two", "fresh"} {
			if o, rec := b.record(t, m); o.Life != state.Alive || o.UID != uids[m] || rec.Held != spec.HoldRemoval {
				t.Errorf("%s: %s is %s, held %q", name, m, o.Life, rec.Held)
			}
		}
		_, err := b.allow(t, "destroy", "machine/one")
		faulttest.Want(t, err, fault.NotReady, "b.yaml is not in force")
		// Another apply does not remove them either, not even while the file is gone
		// for a moment.
		b.files(t, map[string]string{"c.yaml": yaml("three", "four")}, func(f *declare.Folder) { f.Settling = []string{folder + "b.yaml"} })
		if _, err := b.Apply(t.Context(), request("other", yaml("five"))); err != nil {
			t.Error(err)
		}
		if o, _ := b.record(t, "fresh"); o.Life != state.Alive {
			t.Errorf("%s: fresh is %s", name, o.Life)
		}
		// The corrected file takes its machines over.
		if a := b.files(t, map[string]string{"b.yaml": yaml("one", "two"), "c.yaml": yaml("three", "four")}); len(a.Refused) != 0 {
			t.Errorf("%s: refused %v", name, a.Refused)
		}
		b.wantAlive(t, "b", uids, "one", "two")
		if o, _ := b.record(t, "fresh"); o.Life != state.Dying {
			t.Errorf("%s: fresh, which never had an instance, is %s", name, o.Life)
		}
	}
}

func obey(t *testing.T, b *bench) {
	t.Helper()
	config := spec.DefaultConfig()
	config.Removals = spec.RemovalsObey
	b.store.put(id(spec.KindHost, spec.HostName), state.Alive, spec.HostRecord{Config: config}, nil)
}

// allow consents to an impact on an object.
func (b *bench) allow(t *testing.T, impact, object string) (client.Outcome, error) {
	t.Helper()
	o, err := b.allowed(t.Context(), &in[client.AllowRequest]{Body: client.AllowRequest{Impact: impact, Objects: []string{object}}})
	if err != nil {
		t.Fatal(err)
	}
	return o.Body.Outcomes[0], o.Body.Outcomes[0].Err()
}

// A machine that no document declares any more is held until its removal is
// allowed; with removals: obey it is removed at once.
func TestRemovalNeedsConsent(t *testing.T) {
	for _, obeyed := range []bool{false, true} {
		b := newBench(t)
		if obeyed {
			obey(t, b)
		}
		b.files(t, map[string]string{"a.yaml": yaml("one", "two"), "b.yaml": yaml("three")})
		b.runs(t, "one", "two", "three")
		a := b.files(t, map[string]string{"a.yaml": yaml("one"), "b.yaml": yaml("three")})
		if obeyed {
			if o, _ := b.record(t, "two"); o.Life != state.Dying || len(a.Undeclared) != 0 {
				t.Errorf("obeyed: two is %s, kept %v", o.Life, a.Undeclared)
			}
			continue
		}
		if o, rec := b.record(t, "two"); o.Life != state.Alive || rec.Held != spec.HoldRemoval || !slices.Equal(a.Undeclared, []string{"machine/two"}) {
			t.Errorf("two is %s, held %q, kept %v", o.Life, rec.Held, a.Undeclared)
		}
		if _, err := b.allow(t, "destroy", "machine/one"); !fault.Is(err, fault.Conflict) {
			t.Errorf("a declared machine: %v", err)
		}
		if _, err := b.allow(t, "destroy", "machine/two"); err != nil {
			t.Error(err)
		}
		if o, _ := b.record(t, "two"); o.Life != state.Dying {
			t.Errorf("two is %s", o.Life)
		}
	}
}

// If all files are gone at once, or conf.d is on another file system than at
// the last reading, nothing is removed in any mode, also later. The removal of
// each object can be allowed.
func TestALostFolderRemovesNothing(t *testing.T) {
	for name, now := range map[string]func() (map[string]string, func(*declare.Folder)){
		"all gone": func() (map[string]string, func(*declare.Folder)) { return nil, func(*declare.Folder) {} },
		"moved": func() (map[string]string, func(*declare.Folder)) {
			return map[string]string{"a.yaml": yaml("other")}, func(f *declare.Folder) { f.Moved = true }
		},
	} {
		b := newBench(t)
		obey(t, b)
		uids := map[string]string{}
		full := map[string]string{"a.yaml": yaml("one", "two"), "b.yaml": yaml("three")}
		b.files(t, full)
		b.runs(t, "one", "two")
		files, change := now()
		b.files(t, files, change)
		b.files(t, files)
		for _, m := range []string{"one", "two", "three"} {
			if o, rec := b.record(t, m); o.Life != state.Alive || rec.Held != spec.HoldLost {
				t.Errorf("%s: %s is %s, held %q", name, m, o.Life, rec.Held)
			}
		}
		b.files(t, full)
		b.wantAlive(t, "a", uids, "one", "two")
		b.wantAlive(t, "b", uids, "three")
		b.files(t, files, change)
		if _, err := b.allow(t, "destroy", "machine/one"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The same holds for the objects of a file that was renamed, and broken, before
// all files were gone: they have been held since.
func TestALostFolderRemovesNothingThatWasHeld(t *testing.T) {
	b := newBench(t)
	obey(t, b)
	b.files(t, map[string]string{"a.yaml": yaml("one", "fresh")})
	b.runs(t, "one")
	b.files(t, map[string]string{"b.yaml": "version: 1\nmachine: {}\n"})
	b.files(t, nil)
	for _, m := range []string{"one", "fresh"} {
		if o, rec := b.record(t, m); o.Life != state.Alive || rec.Held != spec.HoldLost {
			t.Errorf("%s is %s, held %q", m, o.Life, rec.Held)
		}
	}
}

// A file that is gone for a moment removes nothing, not even with removals:
// obey; another file may take its objects over at once.
func TestAFileThatIsGoneForAMoment(t *testing.T) {
	b := newBench(t)
	obey(t, b)
	uids := map[string]string{}
	b.files(t, map[string]string{"a.yaml": yaml("one", "two"), "b.yaml": yaml("three")})
	b.runs(t, "one", "two", "three")
	b.wantAlive(t, "a", uids, "one", "two")
	settling := func(f *declare.Folder) { f.Settling = []string{folder + "a.yaml"} }
	b.files(t, map[string]string{"b.yaml": yaml("three")}, settling)
	b.wantAlive(t, "a", uids, "one", "two")
	b.files(t, map[string]string{"b.yaml": yaml("three", "one")}, settling)
	b.wantAlive(t, "a", uids, "two")
	b.wantAlive(t, "b", uids, "one", "three")
	b.files(t, map[string]string{"b.yaml": yaml("three", "one")})
	if o, _ := b.record(t, "two"); o.Life != state.Dying {
		t.Errorf("two is %s once its file is missing for good", o.Life)
	}
}

// An applied document moves to conf.d with its objects, under the same or
// another name.
func TestAnAppliedDocumentMovesToConfD(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	uids := map[string]string{}
	if _, err := c.Apply(ctx, request("web", yaml("one", "two"))); err != nil {
		t.Fatal(err)
	}
	b.runs(t, "one", "two")
	b.wantAlive(t, "web", uids, "one", "two")
	before := b.store.changes()
	b.files(t, map[string]string{"web.yaml": yaml("one", "two")})
	b.wantAlive(t, "web", uids, "one", "two")
	if files, err := b.Files(ctx); err != nil || !slices.Equal(files, []string{folder + "web.yaml"}) || b.store.changes() != before+1 {
		t.Errorf("files %v, %d writes, %v", files, b.store.changes()-before, err)
	}
	if _, err := c.Apply(ctx, request("db", yaml("three"))); err != nil {
		t.Fatal(err)
	}
	b.runs(t, "three")
	b.wantAlive(t, "db", uids, "three")
	b.files(t, map[string]string{"web.yaml": yaml("one", "two"), "site.yaml": yaml("three")})
	b.wantAlive(t, "site", uids, "three")
	if got := b.store.names(spec.KindDeclaration); !slices.Equal(got, []string{"site", "web"}) {
		t.Errorf("declarations %v", got)
	}
	// A file with an applied declaration's name and none of its objects is a
	// different declaration.
	if _, err := c.Apply(ctx, request("hand", yaml("four"))); err != nil {
		t.Fatal(err)
	}
	a := b.files(t, map[string]string{"web.yaml": yaml("one", "two"), "site.yaml": yaml("three"), "hand.yaml": yaml("five")})
	faulttest.Want(t, a.Refused[folder+"hand.yaml"], fault.Conflict, "applied by hand", "hand.yaml", "name:")
}

// If two files declare an object differently, its owner keeps it, and the other
// file is refused with both places.
func TestTwoFilesDeclareAnObjectDifferently(t *testing.T) {
	for _, names := range [][2]string{{"a.yaml", "z.yaml"}, {"z.yaml", "a.yaml"}} {
		b := newBench(t)
		uids := map[string]string{}
		b.files(t, map[string]string{names[0]: yaml("one")})
		b.wantAlive(t, names[0][:1], uids, "one")
		other := "version: 1\nmachines:\n  four: {type: lxd, image: debian/12}\n  one: {type: lxd, image: debian/13}\n"
		a := b.files(t, map[string]string{names[0]: yaml("one"), names[1]: other})
		faulttest.Want(t, a.Refused[folder+names[1]], fault.Conflict, "machine/one", folder+names[0]+":3", folder+names[1]+":4")
		b.wantAlive(t, names[0][:1], uids, "one")
		if a := b.files(t, map[string]string{names[0]: yaml("two"), names[1]: other}); len(a.Refused) != 0 {
			t.Errorf("refused %v", a.Refused)
		}
		b.wantAlive(t, names[1][:1], uids, "one")
	}
}

// Files share networks and storage, e.g. a file per service on the same bridge.
func TestReferencesCrossFiles(t *testing.T) {
	const lan = "version: 1\nnetworks: {lan: {bridge: br0, addresses: [10.9.0.1/24]}}\n"
	web := strings.Replace(yaml("web"), "debian/12}", "debian/12, networks: {eth0: {network: lan, address: 10.9.0.10/24}}}", 1)
	db := strings.Replace(web, "web:", "db:", 1)
	b := newBench(t)
	a := b.files(t, map[string]string{"a-web.yaml": web, "b-lan.yaml": lan, "c-db.yaml": strings.Replace(db, "0.10/24", "0.11/24", 1)})
	if len(a.Refused) != 0 {
		t.Fatal(a.Refused)
	}
	b.runs(t, "web", "db")
	// The network of other files' machines stays. A new reference to an undeclared
	// object is refused with its place and the nearest name; each address is
	// assigned once.
	a = b.files(t, map[string]string{"a-web.yaml": web, "c-db.yaml": db, "d.yaml": strings.NewReplacer("web:", "x:", "lan,", "lam,").Replace(web)})
	if g, err := b.store.Get(t.Context(), id(spec.KindNetwork, "lan")); err != nil || g.Life != state.Alive {
		t.Errorf("the network is %s, %v", g.Life, err)
	}
	faulttest.Want(t, a.Refused[folder+"d.yaml"], fault.Invalid, "d.yaml:3:", `"lam"`, `did you mean "lan"?`)
	faulttest.Want(t, a.Refused[folder+"c-db.yaml"], fault.Invalid, "10.9.0.10 is already the address of machine \"web\" ("+folder+"a-web.yaml:3)")
	// A change that breaks another file's machine is refused, with the place of
	// that machine.
	a = b.files(t, map[string]string{"a-web.yaml": web, "b-lan.yaml": strings.Replace(lan, "10.9.0.1", "10.8.0.1", 1)})
	faulttest.Want(t, a.Refused[folder+"b-lan.yaml"], fault.Conflict, "machine/web", "10.9.0.10 is not in the network")
	// The same holds for an apply by hand.
	b = newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	if _, err := c.Apply(ctx, client.ApplyRequest{Documents: []client.Document{{Name: "web", Content: web}, {Name: "net", Content: lan}}}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Apply(ctx, request("net", "version: 1\n"))
	faulttest.Want(t, err, fault.Conflict, "network/lan", "machine/web")
	o, err := c.Delete(ctx, []string{"declaration/net"})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.Want(t, o[0].Err(), fault.Conflict, "network/lan", "machine/web")
	_, err = c.Apply(ctx, request("db", strings.Replace(db, "lan,", "wan,", 1)))
	faulttest.Want(t, err, fault.Invalid, "db:3:", `"wan"`)
}

// A file and its machine that are renamed together block nothing: the former
// machine is held, or removed with removals: obey. A network under a new name
// keeps its bridge.
func TestFileAndObjectsRenamedTogether(t *testing.T) {
	site := func(machine, lan string) string {
		return "version: 1\nnetworks: {" + lan + ": {bridge: br0, addresses: [10.9.0.1/24]}}\nmachines:\n  " + machine +
			": {type: lxd, image: debian/12, networks: {eth0: {network: " + lan + "}}, publish: [{protocol: tcp, host-port: 80, port: 80}]}\n"
	}
	b := newBench(t)
	b.files(t, map[string]string{"a.yaml": site("web", "lan")})
	b.runs(t, "web")
	if a := b.files(t, map[string]string{"a.yaml": site("web", "lan2")}); len(a.Refused) != 0 {
		t.Errorf("the network's name: %v", a.Refused)
	}
	a := b.files(t, map[string]string{"b.yaml": site("web2", "lan2")})
	faulttest.Want(t, a.Refused[folder+"b.yaml"], fault.Invalid, "tcp port 80", `machine "web" (held`)
	if o, rec := b.record(t, "web"); o.Life != state.Alive || rec.Held == "" {
		t.Errorf("web is %s, held %q", o.Life, rec.Held)
	}
	obey(t, b)
	if a := b.files(t, map[string]string{"b.yaml": site("web2", "lan2"), "c.yaml": yaml("three")}); len(a.Refused) != 0 {
		t.Errorf("obeyed: %v", a.Refused)
	}
}

// A machine keeps its address and its ports as long as it exists: its successor
// gets them with the consent to destroy it, or afterwards.
func TestHeldMachinesHaveTheirPorts(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	site := func(machine string) client.ApplyRequest {
		return request("web", "version: 1\nnetworks: {lan: {bridge: br0, addresses: [10.9.0.1/24]}}\nmachines:\n  "+machine+
			": {type: lxd, image: debian/12, networks: {eth0: {network: lan}}, publish: [{protocol: tcp, host-port: 80, port: 80}]}\n")
	}
	if _, err := c.Apply(t.Context(), site("old")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), site("typo")); err != nil { // old has no instance yet
		t.Fatal(err)
	}
	b.runs(t, "typo")
	_, err := c.Apply(t.Context(), site("new"))
	faulttest.Want(t, err, fault.Invalid, "tcp port 80", `machine "typo" (held`)
	destroy := site("new")
	destroy.Allow = []string{"destroy"}
	if p, err := c.Apply(t.Context(), destroy); err != nil || !slices.Equal(p.Removed, []string{"machine/typo"}) {
		t.Errorf("%+v, %v", p, err)
	}
}

// A renamed machine keeps its uid, its status and its instance.
func TestAMachineIsRenamed(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	if _, err := c.Apply(t.Context(), request("web", yaml("m2"))); err != nil {
		t.Fatal(err)
	}
	status := running("m2")
	status.ObservedGeneration = 7
	b.writeStatus(t, id(spec.KindMachine, "m2"), status)
	status.ObservedGeneration = 0 // the new record's generations begin again
	before, _ := b.record(t, "m2")
	p, err := c.Plan(t.Context(), request("web", yaml("m3")))
	if err != nil || !strings.Contains(p.Steps[len(p.Steps)-1].Detail, `add "renamed-from: m2" to m3`) {
		t.Fatalf("%+v, %v", p, err)
	}
	renamed := strings.Replace(yaml("m3"), "lxd,", "lxd, renamed-from: m2,", 1)
	for range 2 {
		p, err := c.Apply(t.Context(), request("web", renamed))
		if err != nil || len(p.Removed) != 0 {
			t.Fatalf("%+v, %v", p, err)
		}
		after, rec := b.record(t, "m3")
		var now spec.MachineStatus
		if err := after.Decode(nil, &now); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(status, now); after.UID != before.UID || rec.InstanceName != "m2" || diff != "" || rec.Held != "" {
			t.Errorf("m3 is %+v\n%s", rec, diff)
		}
		if got := b.store.names(spec.KindMachine); !slices.Equal(got, []string{"m3"}) {
			t.Errorf("machines %v", got)
		}
	}
	_, err = c.Apply(t.Context(), request("web", strings.Replace(yaml("m3", "m4"), "m4: {type: lxd,", "m4: {type: lxd, renamed-from: m3,", 1)))
	faulttest.Want(t, err, fault.Invalid, `"m3" is still declared`)
	_, err = c.Apply(t.Context(), request("web", strings.Replace(yaml("m4"), "type: lxd,", "type: kvm, renamed-from: m3,", 1)))
	faulttest.Want(t, err, fault.Conflict, "cannot become machine/m4 of type kvm")
}

// A declaration that was applied from one path is not replaced from another.
func TestTheSameNameFromAnotherPath(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	from := func(path, content string) client.ApplyRequest {
		return client.ApplyRequest{Documents: []client.Document{{Name: "hostler", Path: path, Content: content}}}
	}
	if _, err := c.Apply(t.Context(), from("/proj1/hostler.yaml", yaml("one"))); err != nil {
		t.Fatal(err)
	}
	_, err := c.Apply(t.Context(), from("/proj2/hostler.yaml", yaml("two")))
	faulttest.Want(t, err, fault.Conflict, "/proj1/hostler.yaml", "name:", "--replace")
	replace := from("/proj2/hostler.yaml", yaml("one"))
	replace.Replace = true
	for range 2 {
		if _, err := c.Apply(t.Context(), replace); err != nil {
			t.Error(err)
		}
		replace.Replace = false
	}
	_, err = c.Apply(t.Context(), client.ApplyRequest{Documents: []client.Document{{Name: spec.StandardInput, Content: yaml("x")}}})
	faulttest.Want(t, err, fault.Invalid, `add "name: NAME"`)
}

// Applying a folder again names the declarations whose files are gone from it.
func TestAFolderIsAppliedAgain(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	dir := client.ApplyRequest{
		Folders:   []string{"/proj"},
		Documents: []client.Document{{Name: "a", Path: "/proj/a.yaml", Content: yaml("one")}, {Name: "b", Path: "/proj/b.yaml", Content: yaml("two")}},
	}
	if _, err := c.Apply(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	b.runs(t, "one", "two")
	dir.Documents = dir.Documents[:1]
	p, err := c.Apply(t.Context(), dir)
	if err != nil || !slices.Equal(p.Gone, []string{"b"}) || len(p.Steps) == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if last := p.Steps[len(p.Steps)-1]; last.Object != "machine/two" || last.Held != "--allow destroy" {
		t.Errorf("step %+v", last)
	}
	if o, rec := b.record(t, "two"); o.Life != state.Alive || rec.Held == "" {
		t.Errorf("two is %s, held %q", o.Life, rec.Held)
	}
}

// The content of a file can be applied by hand to allow a held step; any other
// content is refused, since the file owns the declaration.
func TestFilesCanBeAllowed(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	b.files(t, map[string]string{"web.yaml": yaml("one")})
	if _, err := c.Apply(ctx, request("web", yaml("one"))); err != nil {
		t.Error(err)
	}
	if files, err := b.Files(ctx); err != nil || !slices.Equal(files, []string{folder + "web.yaml"}) {
		t.Errorf("the file lost its declaration: %v, %v", files, err)
	}
	_, err := c.Apply(ctx, request("web", yaml("one", "two")))
	faulttest.Want(t, err, fault.Conflict, "edit that file")
	outcomes, err := c.Delete(ctx, []string{"machine/one", "declaration/web"})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		faulttest.Want(t, o.Err(), fault.Conflict, folder+"web.yaml")
	}
	faulttest.Want(t, c.Release(ctx, "one"), fault.Conflict, folder+"web.yaml")
}

// Reading a file again, as at every start of the agent, does not start a
// machine that the user stopped; a change of the machine does.
func TestFilesReadAgainKeepWhatWasAskedByHand(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	apply := func(content string) *bool {
		t.Helper()
		b.files(t, map[string]string{"web.yaml": content})
		_, rec := b.record(t, "one")
		return rec.PowerOverride
	}
	apply(yaml("one"))
	if err := c.Power(ctx, "one", "stop"); err != nil {
		t.Fatal(err)
	}
	if got := apply(yaml("one", "two")); got == nil || *got {
		t.Error("reading the file again starts what was stopped by hand")
	}
	if got := apply("version: 1\nmachines: {one: {type: lxd, image: debian/12, cpus: 2}}\n"); got != nil {
		t.Error("a changed machine is still stopped by hand")
	}
}
