package api

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"hostler/agent/client"
	"hostler/agent/spec"
)

// manyDocuments returns documents with n entries of a kind in all, per in each.
func manyDocuments(n, per int, kind, entry string) (docs []client.Document) {
	for first := 0; first < n; first += per {
		name := fmt.Sprintf("d%d", first)
		docs = append(docs, client.Document{Name: name, Content: "version: 1\nname: " + name + "\n" + entries(first, min(n, first+per), kind, entry)})
	}
	return docs
}

// entries returns entries of a kind; %d stands for their numbers.
func entries(from, to int, kind, entry string) string {
	var b strings.Builder
	b.WriteString(kind + ":\n")
	for i := from; i < to; i++ {
		b.WriteString(" " + strings.ReplaceAll(entry, "%d", fmt.Sprint(i)) + "\n")
	}
	return b.String()
}

// costs are requests with n objects each, whose cost must not grow with the
// square of n.
func costs() map[string]func(t *testing.T, b *bench, n int) func() {
	plan := func(b *bench, docs []client.Document) func() {
		return func() { _, _ = b.Apply(b.stop, client.ApplyRequest{Documents: docs, DryRun: true}) }
	}
	const volume, filesystem, network = "v%d: {provider: loop, size: 2MiB}", "f%d: {volume: v%d}", "n%d: {bridge: b%d}"
	site := func(n int) client.Document {
		return client.Document{Name: "site.yaml", Content: "version: 1\n" + entries(0, n, "volumes", volume) + entries(0, n, "filesystems", filesystem) +
			entries(0, n, "networks", network) + entries(0, n, "machines", "m%d: {type: lxd, image: a/1, storage: [{filesystem: f%d, path: /x}], networks: {eth0: {network: n%d}}}")}
	}
	applied := func(t *testing.T, b *bench, n int) {
		t.Helper()
		if _, err := b.Apply(t.Context(), client.ApplyRequest{Documents: []client.Document{site(n)}}); err != nil {
			t.Fatal(err)
		}
		for name, kind := range map[string]string{"v": spec.KindVolume, "f": spec.KindFilesystem} { // they hold data
			for i := range n {
				o, err := b.store.Get(t.Context(), id(kind, fmt.Sprintf("%s%d", name, i)))
				if err != nil {
					t.Fatal(err)
				}
				b.store.put(o.ID, o.Life, o.Spec, spec.StorageStatus{Created: true})
			}
		}
	}
	return map[string]func(t *testing.T, b *bench, n int) func(){
		"machines in one document": func(_ *testing.T, b *bench, n int) func() {
			return plan(b, manyDocuments(n, n, "machines", "m%d: {type: lxd, image: a/1}"))
		},
		"a document for each machine": func(_ *testing.T, b *bench, n int) func() {
			return plan(b, manyDocuments(n, 1, "machines", "m%d: {type: lxd, image: a/1}"))
		},
		"a document for each network": func(_ *testing.T, b *bench, n int) func() {
			return plan(b, manyDocuments(n, 1, "networks", "n%d: {bridge: b%d, addresses: ['fd00:%d::1/64'], interfaces: [e%d]}"))
		},
		"everything in one document": func(_ *testing.T, b *bench, n int) func() { return plan(b, []client.Document{site(n)}) },
		"machines on unknown networks": func(_ *testing.T, b *bench, n int) func() {
			docs := manyDocuments(n, n, "machines", "m%d: {type: lxd, image: a/1, networks: {eth0: {network: x%d}}}")
			docs[0].Content += entries(0, n, "networks", network)
			return plan(b, docs)
		},
		"documents that need one another": func(_ *testing.T, b *bench, n int) func() {
			var docs []client.Document
			for i := range n { // the last network is in no document
				docs = append(docs, client.Document{Name: fmt.Sprintf("d%d", i), Content: fmt.Sprintf(
					"version: 1\nnetworks: {n%[1]d: {bridge: b%[1]d}}\nmachines: {m%[1]d: {type: lxd, image: a/1, networks: {eth0: {network: n%[2]d}}}}\n", i, i+1)})
			}
			return plan(b, docs)
		},
		"everything removed": func(t *testing.T, b *bench, n int) func() {
			applied(t, b, n)
			return plan(b, []client.Document{{Name: "site.yaml", Content: "version: 1\n"}})
		},
		"everything renamed": func(t *testing.T, b *bench, n int) func() {
			if _, err := b.Apply(t.Context(), client.ApplyRequest{Documents: manyDocuments(n, n, "machines", "m%d: {type: lxd, image: a/1}")}); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				o, err := b.store.Get(t.Context(), id(spec.KindMachine, fmt.Sprintf("m%d", i)))
				if err != nil {
					t.Fatal(err)
				}
				b.store.put(o.ID, o.Life, o.Spec, running(o.Name))
			}
			return plan(b, manyDocuments(n, n, "machines", "r%d: {type: lxd, image: a/1}"))
		},
		"a network of all machines changed": func(t *testing.T, b *bench, n int) func() {
			docs := append(manyDocuments(n, n, "machines", "m%d: {type: lxd, image: a/1, networks: {eth0: {network: n0}}}"),
				client.Document{Name: "lan", Content: "version: 1\nnetworks: {n0: {bridge: b0}}\n"})
			if _, err := b.Apply(t.Context(), client.ApplyRequest{Documents: docs}); err != nil {
				t.Fatal(err)
			}
			return plan(b, []client.Document{{Name: "lan", Content: "version: 1\nnetworks: {n0: {bridge: b1}}\n"}})
		},
		"everything deleted": func(t *testing.T, b *bench, n int) func() {
			applied(t, b, n)
			var objects []string
			for i := range n {
				objects = append(objects, fmt.Sprintf("network/n%d", i), fmt.Sprintf("filesystem/f%d", i), fmt.Sprintf("machine/m%d", i), fmt.Sprintf("volume/v%d", i))
			}
			return func() {
				if outcomes, err := b.Delete(b.stop, objects...); err != nil || outcomes[0].Error != "" {
					t.Error(outcomes[:1], err)
				}
			}
		},
	}
}

// allocated returns the total heap memory that work allocates. Unlike time it
// does not depend on the machine's load.
func allocated(work func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	work()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}

// Twice as many objects cost about twice as much.
// Attack: API
func TestCostsGrowInProportion(t *testing.T) {
	for name, cost := range costs() {
		t.Run(name, func(t *testing.T) {
			const n = 300
			few := allocated(cost(t, newBench(t), n))
			many := allocated(cost(t, newBench(t), 3*n))
			if many > 3.6*few { // the square would be 9
				t.Errorf("%d things cost %.1f MiB, %d cost %.1f MiB", n, few/(1<<20), 3*n, many/(1<<20))
			}
		})
	}
}
