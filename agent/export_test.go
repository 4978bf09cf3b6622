package agent

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
	"hostler/internal/hosttest"
)

// The export equals the declarations: one declaration unchanged, or all of them
// in one document with everything that they refer to.
func TestExportedIsWhatWasDeclared(t *testing.T) {
	store, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t), Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	a := (&host{store: store}).adopter()
	declare := func(yaml string) spec.Declaration {
		t.Helper()
		d, err := spec.Parse("x.yaml", []byte(yaml))
		if err != nil {
			t.Fatal(err)
		}
		writes := []state.Write{{ID: state.ID{Kind: spec.KindDeclaration, Name: d.Name}, Life: state.Alive, Spec: spec.Encode(spec.DeclarationRecord{Source: spec.SourceApply, Document: d})}}
		for name, m := range d.Machines {
			writes = append(writes, state.Write{ID: state.ID{Kind: spec.KindMachine, Name: name}, Life: state.Alive, Spec: spec.Encode(spec.MachineRecord{Header: spec.Header{Declaration: d.Name}, Machine: m})})
		}
		if _, err := store.Write(t.Context(), state.Atomic, writes...); err != nil {
			t.Fatal(err)
		}
		return d
	}
	exported := func(name string) (spec.Declaration, string) {
		t.Helper()
		text, _, err := a.Export(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		d, err := spec.Parse("y.yaml", text)
		if err != nil {
			t.Fatalf("cannot be read again: %v\n%s", err, text)
		}
		return d, string(text)
	}
	site := declare("version: 1\nname: site\nnetworks: {lan: {bridge: br-lan, addresses: [10.20.0.1/24]}}\nvolumes: {data: {provider: loop, size: 1GiB}}\n" +
		"machines: {web: {type: lxd, image: debian/12, networks: {eth0: {network: lan}}, storage: [{volume: data}]}}\n")
	if d, _ := exported(""); cmp.Diff(site, d) != "" {
		t.Error(cmp.Diff(site, d))
	}
	db := declare("version: 1\nname: db\nfilesystems: {scratch: {provider: tmpfs, size: 64MiB}}\nmachines: {db: {type: lxd, image: debian/12, running: false}}\n")
	for name, want := range map[string]spec.Declaration{"site": site, "db": db} {
		if d, _ := exported(name); cmp.Diff(want, d) != "" {
			t.Errorf("%s: %s", name, cmp.Diff(want, d))
		}
	}
	all, text := exported("")
	if all.Name != "exported" || len(all.Machines) != 2 || len(all.Networks)+len(all.Volumes)+len(all.Filesystems) != 3 || !strings.Contains(text, "declarations db, site;") {
		t.Errorf("all:\n%s", text)
	}
	if _, _, err := a.Export(t.Context(), "nope"); !fault.Is(err, fault.NotFound) {
		t.Errorf("an absent declaration: %v", err)
	}
}

// If a hypervisor is down, the rest is exported; the answer and the document
// name the missing part (C3).
func TestExportWhileAHypervisorIsDown(t *testing.T) {
	h, lxd, kvm, _ := twoTypes(t)
	lxd.Add(containerbroker.Instance{Name: "web", Status: containerbroker.StatusStopped, ImageID: "abc"})
	kvm.Add(containerbroker.Instance{Name: "vm", Status: containerbroker.StatusStopped, ImageID: "abc"})
	kvm.Fail(brokertest.List, "", -1, fault.New(fault.Transient, "cannot reach libvirt:\nno answer"))
	a := h.adopter()
	text, missing, err := a.Export(t.Context(), "")
	if err != nil || len(missing) != 1 || !strings.Contains(missing[0], "on kvm are missing: cannot reach libvirt") {
		t.Fatalf("%q, %v", missing, err)
	}
	d, err := spec.Parse("again", text)
	if err != nil || !slices.Equal(d.Objects(), []string{"machine/web"}) || !strings.Contains(string(text), "\n# "+missing[0]+"\n") {
		t.Errorf("%v\n%s", err, text)
	}
	kvm.Heal()
	text, missing, err = a.Export(t.Context(), "")
	if err != nil || len(missing) != 0 || !strings.Contains(string(text), "vm:") {
		t.Errorf("%q, %v\n%s", missing, err, text)
	}
}
