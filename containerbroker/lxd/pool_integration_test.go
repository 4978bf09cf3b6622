//go:build integration

package lxd_test

import (
	"net/http"
	"slices"
	"testing"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/lxd"
	"hostler/containerbroker/lxd/lxdtest"
)

// L6: a machine's root disk is in the declared pool, which is no difference to
// a declaration without a pool. L7 L8 Z10: no profile comes or goes with a
// machine.
func TestPoolAndProfiles(t *testing.T) {
	t.Parallel()
	server := lxdtest.Start(t)
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler"})
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

// A machine has hostler's profile after the default profile if LXD has it. Its
// NIC, root disk and pool come from there, the pool even if only a size is
// declared. A declared NIC replaces the profile's while it is declared.
func TestProfileBehindTheDefaultOne(t *testing.T) {
	t.Parallel()
	server := lxdtest.Start(t)
	given := map[string]any{
		"root": map[string]string{"type": "disk", "path": "/", "pool": server.Pool},
		"eth0": map[string]string{"type": "nic", "name": "eth0", "network": server.Bridge},
	}
	must(t, server.API(http.MethodPut, "/1.0/profiles/default", map[string]any{}, nil))
	must(t, server.API(http.MethodPost, "/1.0/profiles", map[string]any{"name": "hostler", "devices": given, "config": map[string]string{"user.hostler.profile": "true"}}, nil))
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler", Profile: "hostler"})
	plain, sized := machine("plain", server.TinyFingerprint, "one"), machine("sized", server.TinyFingerprint, "one")
	sized.RootDisk = 64 << 20
	for _, m := range []containerbroker.Machine{plain, sized} {
		must(t, d.Create(t.Context(), m, nil))
		found := get(t, server, m.Name)
		if !slices.Equal(found.Profiles, []string{"default", "hostler"}) || found.ExpandedDevices["eth0"]["network"] != server.Bridge || found.ExpandedDevices["root"]["pool"] != server.Pool {
			t.Errorf("%s has profiles %v and %v", m.Name, found.Profiles, found.ExpandedDevices)
		}
	}
	update := func(m containerbroker.Machine, want string) {
		t.Helper()
		differs := func() []containerbroker.Change {
			all, err := d.List(t.Context(), false)
			must(t, err)
			return d.Diff(m, all[0])
		}
		must(t, d.Update(t.Context(), m, differs()))
		if found := get(t, server, m.Name).ExpandedDevices["eth0"]; found["network"]+found["parent"] != want {
			t.Errorf("eth0 is %v, want it on %s", found, want)
		}
		if changes := differs(); len(changes) > 0 {
			t.Errorf("it still differs: %+v", changes)
		}
	}
	update(plain, server.Bridge)
	wired := plain
	br := brokertest.Bridge(t)
	wired.NICs = []containerbroker.NIC{{Name: "eth0", Bridge: br, MAC: "00:16:3e:aa:00:03"}}
	update(wired, br)
	update(plain, server.Bridge)
}
