//go:build integration

package lxd_test

import (
	"net/http"
	"slices"
	"testing"

	"hostler/containerbroker/lxd"
	"hostler/containerbroker/lxd/lxdtest"
)

// L6: a machine's root disk is in the pool that it names, which is then no
// difference to a declaration that names none. L7 L8 Z10: the only profile is the
// default one, none comes or goes with a machine.
func TestPoolAndProfiles(t *testing.T) {
	server := lxdtest.Start(t)
	d := lxd.New(lxd.Options{Socket: server.Socket, Namespace: "hostler"})
	must(t, server.API(http.MethodPost, "/1.0/storage-pools", map[string]string{"name": "fast", "driver": "dir"}, nil))
	defer func() { must(t, server.API(http.MethodDelete, "/1.0/storage-pools/fast", nil, nil)) }()
	profiles := func() (names []string) {
		must(t, server.API(http.MethodGet, "/1.0/profiles", nil, &names))
		return names
	}
	before := profiles()
	m := machine("web", server.TinyFingerprint, "one")
	m.Pool = "fast"
	must(t, d.Create(t.Context(), m, nil))
	found := get(t, server, "web")
	if pool := found.ExpandedDevices["root"]["pool"]; pool != "fast" || !slices.Equal(found.Profiles, []string{"default"}) {
		t.Errorf("in pool %q, with profiles %v", pool, found.Profiles)
	}
	m.Pool = ""
	all, err := d.List(t.Context(), false)
	must(t, err)
	if changes := d.Diff(m, all[0]); len(changes) != 0 {
		t.Errorf("differs: %v", changes)
	}
	if all[0].Arch == "" || all[0].Arch == "x86_64" {
		t.Errorf("architecture %q", all[0].Arch)
	}
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
	if after := profiles(); !slices.Equal(before, after) {
		t.Errorf("profiles %v, before %v", after, before)
	}
}
