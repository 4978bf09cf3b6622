package api

import (
	"encoding/json"
	"testing"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
)

const formerSite = `version: 1
networks:
  lan: {bridge: br-lan}
volumes:
  data: {provider: loop, size: 1GiB}
filesystems:
  www: {volume: data, type: ext4}
machines:
  web: {type: lxd, image: debian/12}
`

// The records as versions before the common header wrote them.
var formerRecords = map[state.ID]string{
	id(spec.KindNetwork, "lan"):    `{"declaration":"site","network":{"bridge":"br-lan"},"allow":["restart"],"confirm":"1m0s","retry-request":2}`,
	id(spec.KindVolume, "data"):    `{"declaration":"site","volume":{"provider":"loop","size":"1GiB"},"released":true,"retry-request":3,"force":true,"restored":true}`,
	id(spec.KindFilesystem, "www"): `{"declaration":"site","filesystem":{"volume":"data","type":"ext4"},"released":true,"retry-request":4,"force":true,"restored":true}`,
	id(spec.KindMachine, "web"): `{"declaration":"site","machine":{"type":"lxd","image":"debian/12"},"allow":["recreate"],"consents":1,"restart-request":5,` +
		`"retry-request":6,"adopted":true,"released":true,"instance-name":"www"}`,
	id(spec.KindVolume, "left"): `{"declaration":"gone","volume":{"provider":"loop","size":"1GiB"},"restored":true,"held":"removal"}`,
}

// A store of a version before the common header of the records stays readable,
// and the same document applied again changes no object.
func TestAStoreOfTheFormerRecordsIsRead(t *testing.T) {
	dir := t.TempDir()
	open := func() *state.Local {
		store, _, err := state.Open(t.Context(), state.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	former := open()
	doc, lines, err := spec.ParseAlone("site", []byte(formerSite))
	if err != nil {
		t.Fatal(err)
	}
	writes := []state.Write{{ID: id(spec.KindDeclaration, "site"), Spec: spec.Encode(spec.DeclarationRecord{Source: spec.SourceApply, Lines: lines, Document: doc})}}
	for at, record := range formerRecords {
		writes = append(writes, state.Write{ID: at, Spec: json.RawMessage(record)})
	}
	if _, err := former.Write(t.Context(), state.Atomic, writes...); err != nil {
		t.Fatal(err)
	}
	if err := former.Close(); err != nil {
		t.Fatal(err)
	}

	store := open()
	t.Cleanup(func() { _ = store.Close() })
	b := newBench(t, func(o *Options) { o.Backend = store })
	if _, err := b.Apply(t.Context(), client.ApplyRequest{Documents: []client.Document{{Name: "site", Content: formerSite}}}); err != nil {
		t.Fatal(err)
	}
	objects, _, err := store.List(t.Context(), spec.KindNetwork, spec.KindVolume, spec.KindFilesystem, spec.KindMachine)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.Generation != 1 || string(o.Spec) != formerRecords[o.ID] {
			t.Errorf("%s/%s was written: %s", o.Kind, o.Name, o.Spec)
		}
	}
	if err := b.rewrite(t.Context(), false, func(w *declare.State) error { return w.Retry("volume/data", false) }); err != nil {
		t.Fatal(err)
	}
	var volume spec.VolumeRecord
	if o, err := store.Get(t.Context(), id(spec.KindVolume, "data")); err != nil || json.Unmarshal(o.Spec, &volume) != nil {
		t.Fatal(err)
	}
	if volume.RetryRequest != 4 || volume.Force || !volume.Released || !volume.Restored || volume.Declaration != "site" || volume.Volume.Size != spec.GiB {
		t.Errorf("the record is %+v", volume)
	}
}
