package declare

import (
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
)

// An object that a file declares cannot be deleted.
func TestDeleteOfWhatAFileDeclares(t *testing.T) {
	w, err := New([]state.Object{
		{
			ID: state.ID{Kind: spec.KindDeclaration, Name: "site"}, Revision: 1, Life: state.Alive,
			Spec: spec.Encode(spec.DeclarationRecord{Source: "/etc/hostler/conf.d/site.yaml", Document: decl(nil, map[string]spec.Volume{"data": {Provider: "loop", Size: 1}})}),
		},
		{
			ID: state.ID{Kind: spec.KindVolume, Name: "data"}, Life: state.Alive,
			Spec: spec.Encode(spec.VolumeRecord{Header: spec.Header{Declaration: "site"}}),
		},
		// The declaration was lost with the store.
		{
			ID: state.ID{Kind: spec.KindVolume, Name: "found"}, Life: state.Alive,
			Spec: spec.Encode(spec.VolumeRecord{Header: spec.Header{Declaration: "lost"}}),
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	faulttest.Want(t, w.remove("volume/data"), fault.Conflict, "/etc/hostler/conf.d/site.yaml", "edit or remove that file")
	if err := w.remove("volume/found"); err != nil {
		t.Error(err)
	}
	writes := w.Writes()
	if len(writes) != 1 || writes[0].Name != "found" || writes[0].Life != state.Dying {
		t.Errorf("writes %+v", writes)
	}
}

// A formerly known machine is declared again with its former uid.
func TestP28AdoptedAgainKeepsItsUID(t *testing.T) {
	w, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Adopt("left", spec.Machine{Type: spec.LXD, Image: "debian/12"}, "known", "token"); err != nil {
		t.Fatal(err)
	}
	for _, write := range w.Writes() {
		if want := map[string]string{spec.KindMachine: "known"}[write.Kind]; write.UID != want {
			t.Errorf("%s/%s has uid %q, want %q", write.Kind, write.Name, write.UID, want)
		}
	}
}
