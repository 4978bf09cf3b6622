package kvm_test

import (
	"testing"
)

// An interrupted installation, e.g. of another type's packages, is finished. It
// gets nothing installed beside a libvirt that dpkg does not know.
func TestInterruptedInstallationBesideForeignLibvirt(t *testing.T) {
	for name, c := range map[string]struct {
		missing []string
		want    bool
	}{
		"built by hand":       {[]string{"libvirt-daemon", "libvirt-daemon-system", "qemu-utils"}, false},
		"hostler's, complete": {nil, false},
		"hostler's, in part":  {[]string{"libvirt-daemon-system"}, true},
	} {
		h := newHost(t)
		h.programs()
		h.libvirt.listen()
		h.pkgs.missing, h.pkgs.unfinished = c.missing, true
		if err := h.initialise(); err != nil {
			t.Fatal(err)
		}
		if got := len(h.pkgs.names) > 0; got != c.want || h.pkgs.unfinished {
			t.Errorf("%s: installed %q, unfinished %v", name, h.pkgs.names, h.pkgs.unfinished)
		}
	}
}
