package documents

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"hostler/agent/spec"
)

// file returns a wanted document.
func file(t rapid.TB, name, text string) Document {
	t.Helper()
	text = "version: 1\n" + text
	d, lines, err := spec.ParseAlone(name+".yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Document{Name: name, Place: name + ".yaml", From: "/conf.d/" + name + ".yaml", Declaration: d, Text: []byte(text), Lines: lines, Rank: File}
}

func named(docs ...Document) map[string]Document {
	all := map[string]Document{}
	for _, d := range docs {
		all[d.Name] = d
	}
	return all
}

// Documents must not claim each other's bridges, interfaces, subnets, ports,
// addresses and storage; the document in force keeps them.
func TestEachObjectIsClaimedByOneDocument(t *testing.T) {
	site := func(name, bridge, subnet, nic, port, volume string) Document {
		return file(t, name, fmt.Sprintf(`
networks: {%[1]s-lan: {bridge: %[2]s, addresses: [%[3]s], interfaces: [%[4]s]}}
volumes: {%[6]s: {provider: loop, size: 1GiB}}
filesystems: {%[1]s-fs: {volume: %[6]s}}
machines:
  %[1]s:
    type: lxd
    image: debian/12
    networks: {eth0: {network: %[1]s-lan}}
    publish: [{protocol: tcp, host-port: %[5]s, port: 80}]
`, name, bridge, subnet, nic, port, volume))
	}
	a := site("a", "br0", "10.0.0.1/24", "eth1", "80", "data")
	for words, b := range map[string]Document{
		"":                                       site("b", "br1", "10.0.1.1/24", "eth2", "81", "more"),
		`"br0" is already the bridge of`:         site("b", "br0", "10.0.1.1/24", "eth2", "81", "more"),
		"overlaps 10.0.0.0/24 of network":        site("b", "br1", "10.0.0.1/16", "eth2", "81", "more"),
		`"eth1" is already put under the bridge`: site("b", "br1", "10.0.1.1/24", "eth1", "81", "more"),
		"tcp port 80 of the host is already":     site("b", "br1", "10.0.1.1/24", "eth2", "80", "more"),
		`"data" is already used by filesystem`:   site("b", "br1", "10.0.1.1/24", "eth2", "81", "data"),
	} {
		m := Merge(Request{InForce: named(a), Wanted: named(a, b), Owners: map[string]string{}})
		err := m.Refused["b"]
		if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "/conf.d/a.yaml:")) {
			t.Errorf("%q: %v", words, err)
		}
		if m.Refused["a"] != nil {
			t.Errorf("%q: the document in force is refused: %v", words, m.Refused["a"])
		}
	}
}

// Machines of two documents cannot have the same former name, because only one of them
// can have the instance.
func TestOneMachineHasTheFormerName(t *testing.T) {
	renamed := func(document, machine string) Document {
		return file(t, document, "machines: {"+machine+": {type: lxd, image: debian/12, renamed-from: web}}\n")
	}
	a, b := renamed("a", "www"), renamed("b", "api")
	const want = `machines.api.renamed-from: "web" is already the former name of machine "www" (/conf.d/a.yaml:2); use another`
	for what, inForce := range map[string]map[string]Document{"new with the other": nil, "new beside the other": named(a)} {
		if m := Merge(Request{InForce: inForce, Wanted: named(a, b), Owners: map[string]string{}}); m.Refused["b"] == nil || !strings.Contains(m.Refused["b"].Error(), want) || m.Refused["a"] != nil {
			t.Errorf("%s: %v", what, m.Refused)
		}
	}
	if m := Merge(Request{InForce: named(a), Wanted: named(renamed("c", "www")), Owners: map[string]string{}}); len(m.Refused) != 0 {
		t.Errorf("in another document: %v", m.Refused)
	}
}

// A volume under one document's filesystem cannot be a block device in another
// document, whichever of the two is in force first.
// Attack: guests
func TestDocumentsShareNoVolumeBetweenFilesystemAndDevice(t *testing.T) {
	under := file(t, "a", "volumes: {data: {provider: loop, size: 1GiB}}\nfilesystems: {www: {volume: data}}\n")
	device := file(t, "b", "machines: {db: {type: kvm, image: debian/12, storage: [{volume: data, read-only: true}]}}\n")
	volume := file(t, "a", "volumes: {data: {provider: loop, size: 1GiB}}\n")
	filesystem := file(t, "c", "filesystems: {www: {volume: data}}\n")
	for words, r := range map[string]Request{
		`b.yaml:2:65: machines.db.storage[0].volume: filesystem "www" is made on the volume "data" (/conf.d/a.yaml:3)`: {InForce: named(under), Wanted: named(under, device), Owners: map[string]string{}},
		`c.yaml:2:29: filesystems.www.volume: machine "db" has the volume "data" as a block device (/conf.d/b.yaml:2)`: {InForce: named(volume, device), Wanted: named(volume, device, filesystem), Owners: map[string]string{}},
	} {
		m := Merge(r)
		if len(m.Refused) != 1 {
			t.Errorf("refused: %v", m.Refused)
		}
		for _, err := range m.Refused {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("got  %v\nwant %s", err, words)
			}
		}
	}
}

// A change of an object is refused if it breaks machines of another document. The
// reason names the same machine each time.
func TestAChangeBreaksTheUsersOfAnotherDocument(t *testing.T) {
	shared := file(t, "a", "filesystems: {www: {provider: rootfs, size: 64MiB, shared: true}}\n")
	alone := file(t, "a", "filesystems: {www: {provider: rootfs, size: 64MiB}}\n")
	const machine = "{type: lxd, image: debian/12, storage: [{filesystem: www, path: /srv}]}"
	users := file(t, "b", "machines:\n  one: "+machine+"\n  two: "+machine+"\n")
	const want = `machine/one at /conf.d/b.yaml:3 would become invalid: machine "two" has the filesystem "www" already (/conf.d/b.yaml:4)`
	for range 20 {
		m := Merge(Request{InForce: named(shared, users), Wanted: named(alone, users), Owners: map[string]string{"filesystem/www": "a"}, Existing: shared.Declaration})
		if err := m.Refused["a"]; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Fatalf("got  %v\nwant %s", err, want)
		}
	}
}

// An object that all its documents declare alike has one of them as owner, in
// any order of the documents. Documents without conflicts are never refused,
// and refused documents keep their former version.
func TestMergeIsAFunctionOfTheSet(t *testing.T) {
	names := []string{"a", "b", "c"}
	machines := []string{"one", "two", "three"}
	documentIn := func(t *rapid.T, name string) Document {
		var text strings.Builder
		text.WriteString("machines:\n")
		for _, m := range machines {
			if cpus := rapid.IntRange(-2, 2).Draw(t, name+" "+m); cpus > 0 {
				fmt.Fprintf(&text, "  %s: {type: lxd, image: debian/12, cpus: %d}\n", m, cpus)
			}
		}
		return file(t, name, text.String())
	}
	rapid.Check(t, func(t *rapid.T) {
		inForce := Merged{InForce: map[string]Document{}, Owners: map[string]string{}}
		for range 4 {
			wanted := map[string]Document{}
			for _, name := range names {
				if rapid.Bool().Draw(t, "has "+name) {
					wanted[name] = documentIn(t, name)
				}
			}
			previous := map[string]Document{}
			for name, d := range inForce.InForce {
				d.Text = nil
				previous[name] = d
			}
			m := Merge(Request{InForce: previous, Wanted: wanted, Owners: inForce.Owners})
			for object, owner := range m.Owners {
				for name, d := range m.InForce {
					if v := objectIn(d.Declaration, object); v != nil && !same(v, objectIn(m.InForce[owner].Declaration, object)) {
						t.Fatalf("%s is declared differently by %s and %s", object, name, owner)
					}
				}
			}
			for name, d := range wanted {
				switch refused := m.Refused[name]; {
				case refused == nil && !same(m.InForce[name].Declaration, d.Declaration):
					t.Fatalf("%s is in force in another way", name)
				case refused != nil && !same(m.InForce[name].Declaration, previous[name].Declaration):
					t.Fatalf("%s is refused and its former version is not in force", name)
				case refused == nil:
					for _, object := range d.Declaration.Objects() {
						if m.Owners[object] == "" {
							t.Fatalf("%s of %s has no owner", object, name)
						}
					}
				}
			}
			if len(m.Refused) > 0 && !clash(wanted, previous) {
				t.Fatalf("refused without a clash: %v", m.Refused)
			}
			inForce = m
		}
	})
}

// clash reports whether two of the documents declare an object differently.
func clash(sets ...map[string]Document) bool {
	seen := map[string]any{}
	for _, docs := range sets {
		for _, name := range slices.Sorted(maps.Keys(docs)) {
			for _, object := range docs[name].Declaration.Objects() {
				v := objectIn(docs[name].Declaration, object)
				if first, known := seen[object]; known && !same(first, v) {
					return true
				}
				seen[object] = v
			}
		}
	}
	return false
}
