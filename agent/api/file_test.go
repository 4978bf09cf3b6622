package api

import (
	"slices"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

const folder = "/etc/hostler/conf.d/"

// A file that is renamed, split or merged keeps its machines.
func TestFilesThatMoveKeepTheirMachines(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	apply := func(file, content string, gone ...string) {
		t.Helper()
		for i := range gone {
			gone[i] = folder + gone[i]
		}
		if _, err := b.ApplyFile(ctx, folder+file, []byte(content), gone...); err != nil {
			t.Fatal(err)
		}
	}
	wantAlive := func(declaration string, machines ...string) {
		t.Helper()
		for _, m := range machines {
			if o, rec := b.record(t, m); o.Life != state.Alive || rec.Declaration != declaration {
				t.Errorf("%s is %s and of %s, want %s", m, o.Life, rec.Declaration, declaration)
			}
		}
	}
	apply("a.yaml", yaml("one", "two"))
	before, _ := b.record(t, "one")
	apply("b.yaml", yaml("one", "two"), "a.yaml") // renamed
	wantAlive("b", "one", "two")
	apply("c.yaml", "name: b\n"+yaml("one", "two"), "b.yaml") // renamed, with a name of its own
	wantAlive("b", "one", "two")
	apply("d.yaml", yaml("one"), "c.yaml") // split
	apply("e.yaml", yaml("two"), "c.yaml")
	if _, err := b.RemoveFile(ctx, folder+"c.yaml"); err != nil {
		t.Fatal(err)
	}
	wantAlive("d", "one")
	wantAlive("e", "two")
	apply("f.yaml", yaml("one", "two"), "d.yaml", "e.yaml") // merged
	wantAlive("f", "one", "two")
	if got := b.store.names(spec.KindDeclaration); !slices.Equal(got, []string{"f"}) {
		t.Errorf("declarations %v, want f", got)
	}
	if after, _ := b.record(t, "one"); after.UID != before.UID {
		t.Errorf("one was made anew: %s, before %s", after.UID, before.UID)
	}
	// What is still there gives nothing away.
	_, err := b.ApplyFile(ctx, folder+"g.yaml", []byte(yaml("one")))
	wantKind(t, err, fault.Conflict, "machine/one")
}

// The content of a file can be applied by hand, to allow what it needs; any
// other content is the file's to change.
func TestFilesCanBeAllowed(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	if _, err := b.ApplyFile(ctx, folder+"web.yaml", []byte(yaml("one"))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(ctx, request("web", yaml("one"))); err != nil {
		t.Error(err)
	}
	if files, err := b.Files(ctx); err != nil || !slices.Equal(files, []string{folder + "web.yaml"}) {
		t.Errorf("the file lost its declaration: %v, %v", files, err)
	}
	_, err := c.Apply(ctx, request("web", yaml("one", "two")))
	wantKind(t, err, fault.Conflict, "edit that file")
}

// Reading a file again, as every start of the agent does, starts nothing that
// was stopped by hand; a change of the machine does.
func TestFilesReadAgainKeepWhatWasAskedByHand(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	apply := func(content string) *bool {
		t.Helper()
		if _, err := b.ApplyFile(ctx, folder+"web.yaml", []byte(content)); err != nil {
			t.Fatal(err)
		}
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
