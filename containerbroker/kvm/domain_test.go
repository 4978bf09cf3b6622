package kvm

import (
	"encoding/xml"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

func machine() containerbroker.Machine {
	return containerbroker.Machine{
		Name: "web", ImageID: strings.Repeat("a", 64),
		Stamp: containerbroker.Stamp{Namespace: "hostler", UID: "u", Token: "t", Record: "{}"},
	}
}

func planned(t testing.TB, m containerbroker.Machine) plan {
	t.Helper()
	s, err := settingsOf(m)
	if err != nil {
		t.Fatal(err)
	}
	uuid := domainUUID(m.Stamp, m.Name)
	return plan{
		machine: m, uuid: uuid, settings: s, kind: "qemu", network: "default",
		root: "/p/" + rootName(m.Name, uuid), seed: "/p/" + seedName(m.Name, uuid, strings.Repeat("b", 64)), log: "/p/" + logName(m.Name, uuid),
		note: note{
			Namespace: m.Stamp.Namespace, UID: m.Stamp.UID, Token: m.Stamp.Token, Record: "c2VhbGVk", Image: m.ImageID,
			Created: 1, Pool: "default", RootDisk: s.RootDisk, NetworkConfig: s.NetworkConfig,
		},
	}
}

// K1: the defaults of a machine that declares no sizes, and the minimum sizes.
func TestDefaultsAndFloors(t *testing.T) {
	s, err := settingsOf(machine())
	if err != nil || s.CPUs != 1 || s.Memory != 512<<20 || s.RootDisk != 8<<30 {
		t.Errorf("%+v, %v", s, err)
	}
	m := machine()
	m.Memory, m.RootDisk, m.CPUs = 1, 1, 3
	if s, err = settingsOf(m); err != nil || s.CPUs != 3 || s.Memory != 512<<20 || s.RootDisk != 2<<30 {
		t.Errorf("%+v, %v", s, err)
	}
}

// K4: there are 26 letters for disks, and impossible machines are refused.
func TestImpossibleMachinesAreRefused(t *testing.T) {
	disks := func(n int) (all []containerbroker.Disk) {
		for i := range n {
			all = append(all, containerbroker.Disk{Name: fmt.Sprint("vol-", i), Source: "/dev/loop0", Device: fmt.Sprint("/dev/hostler-", i)})
		}
		return all
	}
	for what, change := range map[string]func(*containerbroker.Machine){
		"25 disks": func(m *containerbroker.Machine) { m.Disks = disks(25) },
		"a folder": func(m *containerbroker.Machine) {
			m.Disks = []containerbroker.Disk{{Name: "fs-www", Source: "/srv", Path: "/srv"}}
		},
		"privileges":         func(m *containerbroker.Machine) { m.Privileged = true },
		"no stamp":           func(m *containerbroker.Machine) { m.Stamp.UID = "" },
		"a hostile id":       func(m *containerbroker.Machine) { m.Stamp.UID = "u\x00" },
		"a record of 49 KiB": func(m *containerbroker.Machine) { m.Stamp.Record = strings.Repeat("x", 49<<10) },
	} {
		m := machine()
		change(&m)
		if _, err := settingsOf(m); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	m := machine()
	m.Disks = disks(24)
	def, err := planned(t, m).domain()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, d := range def.Devices.Disks {
		if d.Target.Dev == "" || seen[d.Target.Dev] {
			t.Errorf("target %q", d.Target.Dev)
		}
		seen[d.Target.Dev] = true
	}
	if len(seen) != 26 {
		t.Errorf("%d disks", len(seen))
	}
}

// A definition built from hostile texts reads back as it was declared.
func TestHostileDomainIsReadBack(t *testing.T) {
	m := hostile()
	readBack(t, m, written(t, m))
}

func written(t *testing.T, m containerbroker.Machine) string {
	t.Helper()
	def, err := planned(t, m).domain()
	if err != nil {
		t.Fatal(err)
	}
	text, err := def.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The host's end of an interface is named by its MAC address, for the firewall.
func TestPortsAreNamed(t *testing.T) {
	var names []string
	for _, n := range wantedNICs(hostile(), "uuid", "default") {
		name := ""
		if n.Target != nil {
			name = n.Target.Dev
		}
		names = append(names, name)
	}
	if diff := cmp.Diff([]string{"hn00163e000001", ""}, names); diff != "" {
		t.Error(diff)
	}
	// The bridges are restored by these names (N12).
	_, found := foundNICs(wantedNICs(hostile(), "uuid", "default"), "uuid")
	ports := portsOf(found)
	if len(ports) != 1 || ports["eth0.5_x"] != (containerbroker.Port{Device: "hn00163e000001", Bridge: "br-lan"}) {
		t.Errorf("its ports are %v", ports)
	}
}

// hostile is a machine in which every text tries to break out of the XML.
func hostile() containerbroker.Machine {
	m := machine()
	m.CPUs, m.Memory, m.RootDisk = 3, 700<<20, 10<<30
	m.Stamp.Namespace, m.Stamp.UID = `<&"']]>`, `--><x>`
	m.NICs = []containerbroker.NIC{
		{Name: "eth0.5_x", Bridge: "br-lan", MAC: "00:16:3e:00:00:01", MTU: 1400, Addresses: []string{"10.0.0.2/24"}},
		{Name: "eth1", Bridge: "br1"},
	}
	m.Disks = []containerbroker.Disk{
		{Name: "vol-data.x_y", Source: `/dev/disk/by-id/a&b"<c>`, Device: "/dev/hostler-" + strings.Repeat("d", 63), ReadOnly: true},
		{Name: "vol-b", Source: "/dev/loop0", Device: "/dev/hostler-b"},
	}
	return m
}

// readBack reads a definition as a listing does and compares it with the
// machine's settings.
func readBack(t *testing.T, m containerbroker.Machine, text string) {
	t.Helper()
	var def definition
	if err := def.domain.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	def.note = noteOf(def.domain.Metadata.XML)
	if !def.note.owned(m.Stamp) || def.note.Token != m.Stamp.Token {
		t.Fatalf("the stamp came back as %+v", def.note)
	}
	want, err := settingsOf(m)
	if err != nil {
		t.Fatal(err)
	}
	nics, _ := foundNICs(def.domain.Devices.Interfaces, def.domain.UUID)
	disks, _ := foundDisks(def.domain.Devices.Disks)
	if diff := cmp.Diff(want.NICs, nics); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want.Disks, disks); diff != "" {
		t.Error(diff)
	}
	if def.note.NetworkConfig != want.NetworkConfig {
		t.Errorf("network-config %q", def.note.NetworkConfig)
	}
}

// Metadata of other tools survives, and hostler's is replaced, not doubled.
func TestReplaceNote(t *testing.T) {
	theirs := `<a:x xmlns:a="https://example.com/"><a:y>&lt;k&gt;</a:y></a:x>`
	n := note{Namespace: "hostler", UID: "u", Token: "one", Record: "cmVj"}
	ours, err := n.text()
	if err != nil {
		t.Fatal(err)
	}
	n.Token = "two"
	def := definition{note: &n, domain: libvirtxml.Domain{Metadata: &libvirtxml.DomainMetadata{XML: theirs + ours + "<b xmlns='urn:b'/>"}}}
	got, err := replaceNote(&def)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got, theirs) || !strings.Contains(got, "<b xmlns='urn:b'/>") || strings.Count(got, metadataURI) != 1 {
		t.Errorf("it became %s", got)
	}
	if again := noteOf(got); again == nil || again.Token != "two" {
		t.Errorf("read back as %+v", again)
	}
}

func TestSealedRecordsComeBack(t *testing.T) {
	key, text := []byte(strings.Repeat("k", 32)), strings.Repeat("secret ü ", 1000)
	sealed, err := seal(key, text)
	if err != nil || strings.Contains(sealed, "secret") || unseal(key, sealed) != text {
		t.Errorf("%d bytes, %v", len(sealed), err)
	}
	for _, damaged := range []string{"", "AAAA", sealed[:40], "!" + sealed} {
		if unseal(key, damaged) != "" {
			t.Errorf("%q was read", damaged)
		}
	}
	if unseal([]byte(strings.Repeat("x", 32)), sealed) != "" {
		t.Error("another key reads it")
	}
}

// The same attempt gives the same UUID; every other attempt gives another UUID.
func TestUUIDs(t *testing.T) {
	s := machine().Stamp
	one := domainUUID(s, "web")
	if one != domainUUID(s, "web") || len(one) != 36 {
		t.Errorf("%s", one)
	}
	other := s
	other.Token = "another"
	if one == domainUUID(other, "web") || one == domainUUID(s, "db") {
		t.Error("two attempts have one UUID")
	}
	if id, ok := parseUUID(one); !ok || id[0] == 0 && id[1] == 0 && id[2] == 0 {
		t.Errorf("%v %v", id, ok)
	}
}

func FuzzDomain(f *testing.F) {
	f.Add("web", "hostler", "uid", "token", "br0", "00:16:3e:00:00:01", "vol-data", "/dev/loop0", int64(512<<20), 1, true)
	f.Add("web", `<&"']]>`, "--><x/>", "\x00", "br&", "", "vol-a.b_c", `/dev/"<'&>`, int64(-1), 70000, false)
	f.Fuzz(func(t *testing.T, name, namespace, uid, token, bridge, mac, disk, source string, memory int64, cpus int, readOnly bool) {
		m := containerbroker.Machine{
			Name: name, ImageID: strings.Repeat("a", 64), Properties: containerbroker.Properties{Memory: memory % (1 << 50), CPUs: cpus % 10_000},
			Stamp: containerbroker.Stamp{Namespace: namespace, UID: uid, Token: token},
			NICs:  []containerbroker.NIC{{Name: "eth0", Bridge: bridge, MAC: mac}},
			Disks: []containerbroker.Disk{{Name: disk, Source: source, Device: "/dev/hostler-x", ReadOnly: readOnly}},
		}
		if m.CPUs < 0 || m.Memory < 0 {
			return
		}
		if _, err := settingsOf(m); err != nil {
			return // refused
		}
		def, err := planned(t, m).domain()
		if err != nil {
			t.Fatal(err)
		}
		text, err := def.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal([]byte(text), new(struct{})); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		readBack(t, m, text)
	})
}

func FuzzDefinition(f *testing.F) {
	f.Add("<domain><metadata><instance xmlns='https://hostler.invalid/libvirt/1' namespace='a'/></metadata></domain>")
	f.Add("<domain><vcpu current='9'>x</vcpu><devices><interface/><disk/></devices></domain>")
	f.Fuzz(func(_ *testing.T, text string) {
		var def definition
		if def.domain.Unmarshal(text) != nil {
			return
		}
		if def.domain.Metadata != nil {
			_ = noteOf(def.domain.Metadata.XML)
		}
		if def.domain.Devices != nil {
			_, _ = foundNICs(def.domain.Devices.Interfaces, def.domain.UUID)
			_, _ = foundDisks(def.domain.Devices.Disks)
			_ = agentConnected(def)
		}
	})
}

// W2: a clone has the stamp of the domain that it was cloned from, which proves
// nothing, because the clone has a UUID of its own. A renamed domain keeps its
// stamp.
func TestW2CloneBearsNoStamp(t *testing.T) {
	text, err := note{Namespace: "hostler", UID: "u", Token: "t", Domain: "6f0c6f3a-3b8c-8a55-8d7b-5a0c2a7e1b11"}.text()
	if err != nil {
		t.Fatal(err)
	}
	if n := noteFor("6F0C6F3A-3B8C-8A55-8D7B-5A0C2A7E1B11", text); n == nil || n.UID != "u" {
		t.Errorf("its own note is read as %+v", n)
	}
	if n := noteFor("0b7cf4e2-5a0e-4a3e-9a77-000000000001", text); n != nil {
		t.Errorf("a clone's note is read as %+v", n)
	}
	old, err := note{Namespace: "hostler", UID: "u", Token: "t"}.text()
	if err != nil {
		t.Fatal(err)
	}
	if noteFor("0b7cf4e2-5a0e-4a3e-9a77-000000000001", old) == nil {
		t.Error("a note from before it named its domain is not read")
	}
}
