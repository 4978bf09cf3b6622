package storageprovisioner

import (
	"testing"

	"hostler/agent/spec"
)

// Mount options that would let a machine act on the host stay legal in
// documents. The host overrules them, and its status says so until they go.
func TestOverruledMountOptionsAreANotice(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{})
	r.filesystem("www", spec.Filesystem{Volume: "data", MountOptions: []string{"suid", "noatime", "errors=continue"}})
	r.machine("web", spec.Attachment{Filesystem: "www", Path: "/srv"})
	r.settle()
	const want = "filesystem/www: mount-options: the host mounts it with nosuid, errors=remount-ro in place of suid, errors=continue; remove suid, errors=continue"
	if got := r.notices[overruledNotice]; got != want {
		t.Errorf("notice %q", got)
	}
	if s := r.status(spec.KindFilesystem, "www"); s.State != spec.StorageAttached {
		t.Errorf("filesystem: %+v", s)
	}
	r.filesystem("www", spec.Filesystem{Volume: "data", MountOptions: []string{"noatime"}})
	r.settle()
	if got := r.notices[overruledNotice]; got != "" {
		t.Errorf("without the options: %q", got)
	}
}
