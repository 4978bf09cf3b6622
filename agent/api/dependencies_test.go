package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/agent/state"
	"hostler/internal/fault"
)

func decl(networks map[string]spec.Network, volumes map[string]spec.Volume) spec.Declaration {
	return spec.Declaration{Version: spec.Version, Name: "site", Networks: networks, Volumes: volumes}
}

// put puts documents in force like an apply.
func (w *declaredState) put(docs ...document) error {
	w.enforce(documents.Merge(w.request(docs)), docs)
	_, err := w.updateRecords(docs, removal{})
	return err
}

// carry applies the writes to the objects.
func carry(objects []state.Object, writes []state.Write) []state.Object {
	byID := map[state.ID]state.Object{}
	for _, o := range objects {
		byID[o.ID] = o
	}
	for _, w := range writes {
		o, there := byID[w.ID]
		if !there {
			o = state.Object{ID: w.ID, UID: "uid-" + w.Name, Life: state.Alive}
		}
		o.Revision++
		if w.Spec != nil {
			o.Spec = w.Spec
		}
		if w.Life != "" {
			o.Life = w.Life
		}
		if w.Delete {
			delete(byID, w.ID)
			continue
		}
		byID[w.ID] = o
	}
	var all []state.Object
	for _, id := range sortedIDs(byID) {
		all = append(all, byID[id])
	}
	return all
}

// Networks and storage are declared, changed and removed with their document.
// Declaring the same again writes nothing. Requests of the user outside the
// declaration stay.
func TestNetworksAndStorageAreDeclared(t *testing.T) {
	var objects []state.Object
	apply := func(d spec.Declaration) []string {
		t.Helper()
		w, err := newDeclaredState(objects)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.put(document{name: "site", source: spec.SourceApply, decl: d}); err != nil {
			t.Fatal(err)
		}
		var written []string
		for _, wr := range w.writes() {
			line := wr.Kind + "/" + wr.Name
			if wr.Life != "" {
				line += " " + string(wr.Life)
			}
			written = append(written, line)
		}
		objects = carry(objects, w.writes())
		return written
	}
	first := decl(map[string]spec.Network{"lan": {Bridge: "br-lan"}}, map[string]spec.Volume{"data": {Provider: "loop", Size: 1 << 30}})
	if d := cmp.Diff([]string{"declaration/site", "network/lan", "volume/data"}, apply(first)); d != "" {
		t.Error(d)
	}
	if again := apply(first); len(again) != 0 {
		t.Errorf("declaring the same wrote %v", again)
	}
	for i := range objects {
		if objects[i].Kind == spec.KindVolume {
			objects[i].Spec = spec.Encode(spec.VolumeRecord{Header: spec.Header{Declaration: "site", RetryRequest: 3}, Volume: first.Volumes["data"]})
		}
	}
	grown := decl(first.Networks, map[string]spec.Volume{"data": {Provider: "loop", Size: 2 << 30}})
	if d := cmp.Diff([]string{"declaration/site", "volume/data"}, apply(grown)); d != "" {
		t.Error(d)
	}
	for _, o := range objects {
		var r spec.VolumeRecord
		if o.Kind == spec.KindVolume && (json.Unmarshal(o.Spec, &r) != nil || r.RetryRequest != 3 || r.Volume.Size != 2<<30) {
			t.Errorf("record %+v", r)
		}
	}
	if d := cmp.Diff([]string{"declaration/site", "volume/data dying"}, apply(decl(first.Networks, nil))); d != "" {
		t.Error(d)
	}
	w, err := newDeclaredState(objects)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.put(document{name: "site", source: spec.SourceApply, decl: first}); err != nil || !w.awaited() {
		t.Errorf("a volume that is being removed is not declared again: %v", err)
	}
}

func TestRowsOfStorageAndNetworks(t *testing.T) {
	volume := state.Object{
		ID: state.ID{Kind: spec.KindVolume, Name: "data"}, Life: state.Alive,
		Spec:   spec.Encode(spec.VolumeRecord{Header: spec.Header{Declaration: "site"}, Volume: spec.Volume{Provider: "loop", Size: 7}}),
		Status: spec.Encode(spec.StorageStatus{State: spec.StorageAttached, Device: "/dev/loop3", Attachments: map[string]spec.AttachmentStatus{"web": {State: spec.StorageAttached, Source: "/dev/loop3"}}}),
	}
	row, err := volumeRow(volume)
	if err != nil || row.Provider != "loop" || row.Size != 7 || row.Device != "/dev/loop3" || len(row.Attachments) != 1 || row.Attachments[0].Machine != "web" {
		t.Errorf("%+v %v", row, err)
	}
	network := state.Object{
		ID: state.ID{Kind: spec.KindNetwork, Name: "lan"}, Life: state.Alive,
		Spec:   spec.Encode(spec.NetworkRecord{Network: spec.Network{Bridge: "br-lan"}}),
		Status: spec.Encode(spec.NetworkStatus{Guests: map[string]spec.GuestAddress{"web/eth0": {Addresses: []string{"10.0.0.2/24"}}}}),
	}
	lan, err := networkRow(network)
	if err != nil || lan.Bridge != "br-lan" || lan.Status != "pending" || len(lan.Guests["web/eth0"]) != 1 {
		t.Errorf("%+v %v", lan, err)
	}
}

// A volume grows in its record and in its declaration. It does not shrink, and
// a file's volume can only be changed in the file. The observed size counts: a
// declared size that the volume never reached can be reduced.
func TestResizeVolume(t *testing.T) {
	for name, c := range map[string]struct {
		source   string
		declared spec.Size
		has      int64
		size     spec.Size
		want     string
	}{
		"larger":            {spec.SourceApply, 1 << 30, 0, 2 << 30, ""},
		"same":              {spec.SourceApply, 1 << 30, 0, 1 << 30, ""},
		"smaller":           {spec.SourceApply, 1 << 30, 0, 1 << 20, "it has 1GiB and cannot shrink to 1MiB"},
		"file":              {"/etc/hostler/conf.d/site.yaml", 1 << 30, 0, 2 << 30, "declared in /etc/hostler/conf.d/site.yaml"},
		"taken back":        {spec.SourceApply, 2 << 40, 1 << 30, 1 << 30, ""},
		"taken back partly": {spec.SourceApply, 2 << 40, 1 << 30, 2 << 30, ""},
		"below what it has": {spec.SourceApply, 2 << 40, 1 << 30, 1 << 29, "it has 1GiB and cannot shrink to 512MiB"},
		"before rounding":   {spec.SourceApply, 2 << 40, 1 << 30, 1<<30 - 5, ""},
	} {
		volumes := map[string]spec.Volume{"data": {Provider: "loop", Size: c.declared}}
		w, err := newDeclaredState([]state.Object{
			{
				ID: state.ID{Kind: spec.KindDeclaration, Name: "site"}, Revision: 1, Life: state.Alive,
				Spec: spec.Encode(spec.DeclarationRecord{Source: c.source, Document: spec.Declaration{Version: 1, Name: "site", Volumes: volumes}}),
			},
			{
				ID: state.ID{Kind: spec.KindVolume, Name: "data"}, Life: state.Alive,
				Spec:   spec.Encode(spec.VolumeRecord{Header: spec.Header{Declaration: "site"}, Volume: volumes["data"]}),
				Status: spec.Encode(spec.StorageStatus{Created: c.has > 0, Size: c.has}),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		err = w.resizeVolume("data", c.size)
		if c.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		writes := w.writes()
		if changes := c.want == "" && c.size != c.declared; changes != (len(writes) == 2) {
			t.Errorf("%s: %d writes", name, len(writes))
		}
		if got := w.declarations["site"].record.Document.Volumes["data"].Size; c.want == "" && got != c.size {
			t.Errorf("%s: the declaration says %s", name, got)
		}
		if err := w.resizeVolume("other", 1<<30); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A retry is counted in the record; force covers that retry only.
func TestRetryOfStorage(t *testing.T) {
	w, err := newDeclaredState([]state.Object{{
		ID: state.ID{Kind: spec.KindFilesystem, Name: "www"}, Life: state.Dying,
		Spec: spec.Encode(spec.FilesystemRecord{Header: spec.Header{Declaration: "site"}}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	id := state.ID{Kind: spec.KindFilesystem, Name: "www"}
	for i, force := range []bool{true, false} {
		if err := w.retryDependency(id, force); err != nil {
			t.Fatal(err)
		}
		var r spec.FilesystemRecord
		if err := json.Unmarshal(w.dependencies[id].now, &r); err != nil || r.RetryRequest != i+1 || r.Force != force {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
