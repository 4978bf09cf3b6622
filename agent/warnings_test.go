package agent

import (
	"slices"
	"strings"
	"testing"

	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker/images"
	lxdinit "hostler/initialisers/lxd"
	"hostler/internal/fault"
	"hostler/internal/paths"
)

// A plan warns about an image that is not available, if the machine still needs
// it, and about limits beyond the host.
func TestForesee(t *testing.T) {
	cache, err := images.Open(images.Options{Dir: t.TempDir(), Sources: []string{"local", "build"}})
	if err != nil {
		t.Fatal(err)
	}
	limited := map[spec.ContainerType]constructors{spec.LXD: {
		driver: func(*host) (driver, error) { return driver{}, fault.New(fault.NotReady, "not set up") }, rootDiskNotice: lxdinit.LXD.RootDiskNotice(),
	}}
	h := &host{drivers: limited, notices: map[string]string{lxdinit.LXD.RootDiskNotice(): "LXD's pool has no limits"}, images: cache, paths: paths.New("", "/nowhere/hostler.yaml", t.TempDir(), t.TempDir())}
	machine := func(name string, m spec.Machine, status *spec.MachineStatus) declare.Planned {
		o := state.Object{ID: state.ID{Kind: spec.KindMachine, Name: name}, Life: state.Alive, Spec: spec.Encode(spec.MachineRecord{Machine: m})}
		p := declare.Planned{After: o}
		if status != nil {
			o.Status = spec.Encode(status)
			p.Before = &o
		}
		return p
	}
	filesystem := func(name string, options ...string) declare.Planned {
		record := spec.FilesystemRecord{Filesystem: spec.Filesystem{Volume: "data", MountOptions: options}}
		return declare.Planned{After: state.Object{ID: state.ID{Kind: spec.KindFilesystem, Name: name}, Life: state.Alive, Spec: spec.Encode(record)}}
	}
	made := &spec.MachineStatus{Instance: &spec.InstanceInfo{Name: "old"}}
	lost := spec.Machine{Type: spec.LXC, Image: "debain/12"}
	got := h.planner().Warnings(t.Context(), []declare.Planned{
		machine("web", lost, nil), machine("old", lost, made), machine("other", lost, nil),
		machine("big", spec.Machine{Type: spec.LXC, Image: "debian/12", CPUs: 4000, Memory: 1 << 50, RootDisk: 1 << 60}, nil),
		machine("small", spec.Machine{Type: spec.LXD, Image: "debian/12", RootDisk: 1 << 30}, nil),
		filesystem("www", "noatime", "suid", "errors=panic", "errors=remount-ro"), filesystem("other", "dev"),
	}, map[string]bool{"machine/web": true, "machine/old": true, "machine/big": true, "machine/small": true, "filesystem/www": true})
	want := []string{
		"machine/web: no image \"debain/12\"", "machine/big: cpus: 4000 is more", "machine/big: memory: 1024TiB is more",
		"machine/big: root-disk: 1048576TiB is more", "machine/small: root-disk: 1GiB does not hold: LXD's pool has no limits",
		"filesystem/www: mount-options: the host mounts it with nosuid, errors=remount-ro in place of suid, errors=panic; remove suid, errors=panic",
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got %q, want %q", got, want)
	}
}
