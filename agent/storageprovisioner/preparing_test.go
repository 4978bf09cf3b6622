package storageprovisioner

import (
	"testing"

	"hostler/agent/spec"
	"hostler/storage"
)

// lacking is a source without the tools of xfs.
type lacking struct{ storage.FilesystemSource }

func (lacking) Missing(kind string) string {
	if kind == "xfs" {
		return "xfsprogs"
	}
	return ""
}

// A filesystem with missing tools gets a step that prepares the host, once per
// type, and is not refused.
func TestMissingToolsArePlanned(t *testing.T) {
	entity := func(name, kind string) Entity {
		return Entity{Kind: spec.KindFilesystem, Name: name, Source: Managed, Filesystem: spec.Filesystem{Volume: "data", Type: kind}}
	}
	d := Desired{Entities: []Entity{entity("a", ""), entity("b", "xfs"), entity("c", "xfs"), entity("d", "xfs")}}
	create := func(name, held string) Step {
		return Step{Kind: spec.KindFilesystem, Name: name, Action: ActionCreate, Held: held}
	}
	s := Sources{Filesystems: map[string]storage.FilesystemSource{Managed: lacking{}}}
	got := s.Preparing(d, []Step{create("a", ""), create("b", "its data is gone"), create("c", ""), create("d", ""), {Kind: spec.KindFilesystem, Name: "d", Action: ActionGrow}})
	if len(got) != 1 || got[0].Name != "c" || got[0].Action != ActionPrepare || got[0].Detail != "the package xfsprogs is installed on the host" {
		t.Errorf("got %+v", got)
	}
}
