package spec

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// anyDeclaration draws valid declarations.
func anyDeclaration(t *rapid.T) Declaration {
	name := rapid.StringMatching(namePattern)
	d := Declaration{Version: 1, Name: name.Draw(t, "name")}
	volumes := rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(t, "volumes")
	for _, v := range volumes {
		put(&d.Volumes, v, Volume{
			Provider: "loop", Size: LeastOn("xfs") + anySize(t), Retain: rapid.Bool().Draw(t, "retain"),
			Allocation: rapid.SampledFrom([]string{"", AllocationFull, AllocationSparse}).Draw(t, "allocation"),
		})
	}
	for i, f := range rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(t, "filesystems") {
		fs := Filesystem{MountOptions: rapid.SampledFrom([][]string{nil, {"noatime"}, {"nodev", "uid=1"}}).Draw(t, "options")}
		if i < len(volumes) {
			fs.Volume, fs.Type = volumes[i], rapid.SampledFrom(append(filesystemTypes, "")).Draw(t, "type")
			fs.Wipe = rapid.Bool().Draw(t, "wipe")
		} else {
			fs.Provider, fs.Size = rapid.SampledFrom(filesystemProviders).Draw(t, "provider"), MiB+anySize(t)
			fs.Shared, fs.Retain = rapid.Bool().Draw(t, "shared"), fs.Provider == "rootfs" && rapid.Bool().Draw(t, "retain")
		}
		put(&d.Filesystems, f, fs)
	}
	for i, n := range rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(t, "networks") {
		put(&d.Networks, n, Network{
			Bridge: fmt.Sprintf("br%d", i), Addresses: []string{fmt.Sprintf("10.%d.0.1/24", i), fmt.Sprintf("fd00:%d::1/64", i+1)},
			MTU: rapid.SampledFrom([]int{0, 1280, 9000}).Draw(t, "mtu"), NAT: rapid.Bool().Draw(t, "nat"), DHCP: rapid.Bool().Draw(t, "dhcp"),
			Forwarding: rapid.Bool().Draw(t, "forwarding"), ProxyARP: rapid.Bool().Draw(t, "arp"),
		})
	}
	for i, m := range rapid.SliceOfNDistinct(rapid.StringMatching(machinePattern), 0, 4, rapid.ID).Draw(t, "machines") {
		put(&d.Machines, m, anyMachine(t, d, i))
	}
	return d
}

func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

func anySize(t *rapid.T) Size { return Size(rapid.Int64Range(0, 1<<50).Draw(t, "size")) }

func anyMachine(t *rapid.T, d Declaration, i int) Machine {
	flag := rapid.Ptr(rapid.Bool(), true)
	m := Machine{
		Type:  rapid.SampledFrom([]ContainerType{LXD, KVM, LXC}).Draw(t, "type"),
		Image: rapid.SampledFrom([]string{"debian/12", "simplestreams:images/debian/12", "file:/srv/a b#sha256=" + strings.Repeat("0a", 32)}).Draw(t, "image"),
		CPUs:  rapid.IntRange(0, maxCPUs).Draw(t, "cpus"), Memory: GiB + anySize(t), RootDisk: 4*GiB + anySize(t),
		Autostart: flag.Draw(t, "autostart"), Running: flag.Draw(t, "running"), Retain: rapid.Bool().Draw(t, "retain"),
		Nesting: rapid.Bool().Draw(t, "nesting"), SSHKeys: rapid.SampledFrom([][]string{nil, {anyKey}}).Draw(t, "keys"),
	}
	if rapid.Bool().Draw(t, "has user-data") {
		m.CloudInit.OnChange = rapid.SampledFrom([]string{"", OnChangeIgnore, OnChangeRerun}).Draw(t, "on-change")
		m.CloudInit.UserData = "#!" + rapid.StringOf(rapid.SampledFrom([]rune("ab:#'\"\\ \n\n\t\r-é|>%@{}[]&*!?,"))).Draw(t, "user-data")
	}
	for n := range d.Networks {
		net, err := strconv.Atoi(strings.TrimPrefix(d.Networks[n].Bridge, "br"))
		if err != nil {
			t.Fatal(err)
		}
		put(&m.Networks, fmt.Sprintf("eth%d", net), NIC{Network: n, Address: fmt.Sprintf("10.%d.0.%d/24", net, i+10)})
		m.Publish = append(m.Publish, Publish{Protocol: "tcp", HostPort: 8000 + 10*i + net, Port: 80, Sources: []string{"10.0.0.0/8"}})
	}
	for f := range d.Filesystems {
		if i > 0 && !d.Filesystems[f].Shared || m.Type == KVM {
			continue
		}
		m.Storage = append(m.Storage, Attachment{Filesystem: f, Path: "/srv/" + f, ReadOnly: rapid.Bool().Draw(t, "ro")})
	}
	formatted := map[string]bool{}
	for _, f := range d.Filesystems {
		formatted[f.Volume] = true
	}
	for v := range d.Volumes {
		if formatted[v] {
			continue
		}
		// The size serves as a random bit for the choice of reader or writer.
		if readOnly := d.Volumes[v].Size%2 == 0; i == 0 || readOnly {
			m.Storage = append(m.Storage, Attachment{Volume: v, ReadOnly: readOnly})
		}
	}
	return m
}

var anyKey = func() string {
	const kind = "ssh-ed25519"
	blob := binary.BigEndian.AppendUint32(nil, uint32(len(kind)))
	blob = append(blob, kind...)
	blob = binary.BigEndian.AppendUint32(blob, 32)
	blob = append(blob, make([]byte, 32)...)
	return kind + " " + base64.StdEncoding.EncodeToString(blob) + " me@host"
}()

// Parse reads the output of EncodeYAML, and the JSON in the store can be
// decoded.
func TestDeclarationsSurviveWritingAndReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := anyDeclaration(t)
		text := EncodeYAML(d)
		got, err := Parse("other", text)
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("got %+v, %v, want %+v\n%s", got, err, d, text)
		}
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var stored Declaration
		if err := json.Unmarshal(b, &stored); err != nil || !reflect.DeepEqual(stored, d) {
			t.Fatalf("stored %+v, %v, want %+v", stored, err, d)
		}
		// JSON is parsed like the YAML of the same document.
		if got, err := Parse("other", b); err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("JSON read as %+v, %v, want %+v\n%s", got, err, d, b)
		}
	})
}

func TestSizesAndDurationsSurviveText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Size(rapid.Int64Min(0).Draw(t, "size"))
		if got, err := ParseSize(s.String()); err != nil || got != s {
			t.Fatalf("%d became %q, then %d, %v", s, s.String(), got, err)
		}
		d := Duration(rapid.Int64Min(0).Draw(t, "duration"))
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Fatalf("%d became %q, then %d, %v", d, d.String(), got, err)
		}
	})
}
