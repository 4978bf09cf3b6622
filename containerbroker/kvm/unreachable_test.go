package kvm

import (
	"path/filepath"
	"testing"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// The error for a stopped libvirt is in plain words and says how to start it.
func TestStoppedLibvirtIsReportedPlainly(t *testing.T) {
	d := New(Options{Socket: filepath.Join(t.TempDir(), "socket"), Namespace: "hostler"})
	_, err := d.List(t.Context(), false)
	if err == nil || err.Error() != "libvirt does not answer; start it: systemctl start libvirtd" ||
		!fault.Is(err, fault.Transient) || containerbroker.Unanswered(err) != "libvirt does not answer" {
		t.Errorf("%v", err)
	}
}
