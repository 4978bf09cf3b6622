package spec

import (
	"slices"
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
	var got []string
	for _, u := range UnsupportedIn(d) {
		got = append(got, u.String())
	}
	if got != nil {
		t.Errorf("got %v for what is supported", got)
	}
	lxc := &containerTypes[slices.IndexFunc(containerTypes, func(i TypeInfo) bool { return i.Type == LXC })]
	lxc.Supported = false
	t.Cleanup(func() { lxc.Supported = true })
	if diff := cmp.Diff([]Unsupported{{"machine/old", "type lxc is not yet supported by this agent"}}, UnsupportedIn(d)); diff != "" {
		t.Error(diff)
	}
}
