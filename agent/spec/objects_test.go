package spec

import (
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
