package spec

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parsed(t *testing.T, name, document string) Declaration {
	t.Helper()
	d, err := Parse(name, []byte("version: 1\n"+document))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestObjects(t *testing.T) {
	d := parsed(t, "site", `
networks: {lan: {bridge: br0}}
volumes: {data: {provider: loop, size: 1GiB}}
filesystems: {www: {volume: data}}
machines: {web: {type: lxd, image: debian/12}, db: {type: lxd, image: debian/12}}
`)
	want := []string{"filesystem/www", "machine/db", "machine/web", "network/lan", "volume/data"}
	if diff := cmp.Diff(want, d.Objects()); diff != "" {
		t.Error(diff)
	}
}

func TestConflicts(t *testing.T) {
	site := func(name, bridge, subnet, port string) Declaration {
		return parsed(t, name, `
networks: {`+name+`-lan: {bridge: `+bridge+`, addresses: [`+subnet+`], interfaces: [eth1]}}
machines:
  web: {type: lxd, image: debian/12}
  `+name+`:
    type: lxd
    image: debian/12
    networks: {eth0: {network: `+name+`-lan}}
    publish: [{protocol: tcp, host-port: `+port+`, port: 80}, {protocol: udp, host-port: 53, port: 53}]
`)
	}
	a, b := site("a", "br0", "10.0.0.1/24", "80"), site("b", "br0", "10.0.1.1/24", "80")
	var objects []string
	for _, c := range Conflicts(map[string]Declaration{"a": a, "b": b}) {
		objects = append(objects, c.Object)
		if c.Declarations != [2]string{"a", "b"} || !strings.Contains(c.Message, `"a" and "b"`) {
			t.Errorf("the declarations are not named: %+v", c)
		}
	}
	want := []string{"bridge br0", "interface eth1", "machine/web", "tcp port 80 of the host", "udp port 53 of the host"}
	if diff := cmp.Diff(want, objects); diff != "" {
		t.Error(diff)
	}
	c := parsed(t, "c", "machines: {c: {type: lxd, image: debian/12}}\n")
	if got := Conflicts(map[string]Declaration{"a": a, "c": c}); got != nil {
		t.Errorf("conflicts where none are: %+v", got)
	}
}

func TestUnsupported(t *testing.T) {
	d := parsed(t, "site", `
networks: {lan: {bridge: br0, interfaces: [eth1]}, dmz: {bridge: br1}}
volumes: {data: {provider: loop, size: 1GiB}}
filesystems: {www: {volume: data}}
machines:
  web:
    type: kvm
    image: debian/12
    networks: {eth0: {network: lan}}
    publish: [{protocol: tcp, host-port: 80, port: 80}]
  old: {type: lxc, image: debian/12}
  plain: {type: lxd, image: debian/12, cpus: 1}
`)
	got := Unsupported(d)
	want := []string{
		"machine/old: type lxc is",
	}
	for i := range want {
		want[i] += " not yet supported by this agent"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	plain := parsed(t, "site", "machines: {plain: {type: lxd, image: debian/12}}\n")
	if got := Unsupported(plain); !slices.Equal(got, nil) {
		t.Errorf("got %q for what is supported", got)
	}
}
