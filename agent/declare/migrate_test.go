package declare

import (
	"testing"

	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
)

// The machine and its document change their type in one write, and the former
// document declares the same machine.
func TestMigration(t *testing.T) {
	site := spec.Declaration{Version: spec.Version, Name: "site", Machines: map[string]spec.Machine{"web": {Type: spec.LXD, Image: "debian/12"}}}
	w, err := New([]state.Object{
		{
			ID: state.ID{Kind: spec.KindDeclaration, Name: "site"}, Revision: 1, Life: state.Alive,
			Spec: spec.Encode(spec.DeclarationRecord{Source: spec.SourceApply, Document: site}),
		},
		{
			ID: state.ID{Kind: spec.KindMachine, Name: "web"}, UID: "u", Life: state.Alive,
			Spec: spec.Encode(spec.MachineRecord{Header: spec.Header{Declaration: "site"}, Machine: site.Machines["web"]}),
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := spec.Migration{From: spec.LXD, To: spec.Incus, Phase: spec.MigrationWaiting}
	faulttest.Want(t, w.BeginMigration("web", "another", m), fault.NotFound)
	if err := w.BeginMigration("web", "u", m); err != nil {
		t.Fatal(err)
	}
	faulttest.Want(t, w.BeginMigration("web", "u", m), fault.Conflict, "begun already")
	// A document with the new type comes into force after the migration.
	moved := applied("site", spec.Declaration{Machines: map[string]spec.Machine{"web": {Type: spec.Incus, Image: "debian/12"}}})
	faulttest.Want(t, w.checkFixed(moved), fault.NotReady, "is being migrated")
	moved.Declaration.Machines["web"] = spec.Machine{Type: spec.KVM, Image: "debian/12"}
	faulttest.Want(t, w.checkFixed(moved), fault.Conflict, "cannot become kvm")
	m.Waits = "waits for the host"
	if err := w.SetMigration("web", "u", m); err != nil {
		t.Fatal(err)
	}
	if got := w.objects["machine/web"].machine().Machine.Type; got != spec.LXD {
		t.Errorf("a waiting machine is of type %s", got)
	}
	m.Phase = spec.MigrationMoved
	r := w.objects["machine/web"].machine()
	r.Machine.Image = "lxd:mine" // another document meanwhile
	faulttest.Want(t, w.SetMigration("web", "u", m), fault.NeedsOperator, "own store of lxd")
	if r.Machine.Type != spec.LXD || r.Migration.Phase != spec.MigrationWaiting {
		t.Errorf("the machine is %+v", r)
	}
	r.Machine.Image = "debian/12"
	if err := w.SetMigration("web", "u", m); err != nil {
		t.Fatal(err)
	}
	if got := w.objects["machine/web"].machine().Machine.Type; got != spec.Incus {
		t.Errorf("a moved machine is of type %s", got)
	}
	if got := w.declarations["site"].record.Document.Machines["web"].Type; got != spec.Incus {
		t.Errorf("its document says %s", got)
	}
	if writes := w.Writes(); len(writes) != 2 {
		t.Errorf("writes %+v", writes)
	}
	docs := []Document{{Document: documents.Document{Name: "site", Declaration: site}}}
	if w.retype(docs); site.Machines["web"].Type != spec.Incus {
		t.Errorf("the former document declares type %s", site.Machines["web"].Type)
	}
}
