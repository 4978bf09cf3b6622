package declare

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/storage"
)

func decl(networks map[string]spec.Network, volumes map[string]spec.Volume) spec.Declaration {
	return spec.Declaration{Version: spec.Version, Name: "site", Networks: networks, Volumes: volumes}
}

// applied returns an applied document.
func applied(name string, d spec.Declaration) Document {
	return Document{Document: documents.Document{Name: name, Declaration: d}, Source: spec.SourceApply}
}

// putAll puts documents in force like an apply.
func (w *State) putAll(docs ...Document) {
	w.enforce(documents.Merge(w.request(docs)), docs)
	w.updateRecords(docs, removal{})
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
	for _, o := range byID {
		all = append(all, o)
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
		w, err := New(objects, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.putAll(applied("site", d))
		var written []string
		for _, wr := range w.Writes() {
			line := wr.Kind + "/" + wr.Name
			if wr.Life != "" {
				line += " " + string(wr.Life)
			}
			written = append(written, line)
		}
		objects = carry(objects, w.Writes())
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
	w, err := New(objects, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.putAll(applied("site", first))
	if !w.Awaits() {
		t.Error("a volume that is being removed is not declared again")
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
		w, err := New([]state.Object{
			{
				ID: state.ID{Kind: spec.KindDeclaration, Name: "site"}, Revision: 1, Life: state.Alive,
				Spec: spec.Encode(spec.DeclarationRecord{Source: c.source, Document: spec.Declaration{Version: 1, Name: "site", Volumes: volumes}}),
			},
			{
				ID: state.ID{Kind: spec.KindVolume, Name: "data"}, Life: state.Alive,
				Spec:   spec.Encode(spec.VolumeRecord{Header: spec.Header{Declaration: "site"}, Volume: volumes["data"]}),
				Status: spec.Encode(spec.StorageStatus{Created: c.has > 0, Size: c.has}),
			},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = w.Resize("data", c.size, spec.Size(storage.RoundSize(int64(c.size))))
		if c.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		writes := w.Writes()
		if changes := c.want == "" && c.size != c.declared; changes != (len(writes) == 2) {
			t.Errorf("%s: %d writes", name, len(writes))
		}
		if got := w.declarations["site"].record.Document.Volumes["data"].Size; c.want == "" && got != c.size {
			t.Errorf("%s: the declaration says %s", name, got)
		}
		if err := w.Resize("other", 1<<30, 1<<30); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A retry is counted in the record; force covers that retry only.
func TestRetryOfStorage(t *testing.T) {
	w, err := New([]state.Object{{
		ID: state.ID{Kind: spec.KindFilesystem, Name: "www"}, Life: state.Dying,
		Spec: spec.Encode(spec.FilesystemRecord{Header: spec.Header{Declaration: "site"}}),
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, force := range []bool{true, false} {
		if err := w.Retry("filesystem/www", force); err != nil {
			t.Fatal(err)
		}
		if h := w.objects["filesystem/www"].head(); h.RetryRequest != i+1 || h.Force != force {
			t.Errorf("%+v", h)
		}
	}
}

// The time for a confirmation applies to a single change.
func TestConfirmBelongsToTheChange(t *testing.T) {
	network := func(mtu int) spec.Declaration {
		return spec.Declaration{Version: 1, Name: "net", Networks: map[string]spec.Network{"lan": {Bridge: "br-lan", MTU: mtu}}}
	}
	apply := func(before *State, d spec.Declaration, confirm spec.Duration) spec.NetworkRecord {
		t.Helper()
		doc := applied("net", d)
		doc.Confirm = confirm
		before.putAll(doc)
		return *before.objects["network/lan"].now.(*spec.NetworkRecord)
	}
	w, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := apply(w, network(1400), spec.Duration(time.Minute)); r.Confirm != spec.Duration(time.Minute) {
		t.Errorf("a new network waits %s", r.Confirm)
	}
	o := w.objects["network/lan"]
	o.was = o.copy(o.now)
	if r := apply(w, network(1400), 0); r.Confirm != spec.Duration(time.Minute) {
		t.Errorf("the same network waits %s", r.Confirm)
	}
	if r := apply(w, network(1500), 0); r.Confirm != 0 {
		t.Errorf("a changed network waits %s", r.Confirm)
	}
}
