package mountoption

import "testing"

// Only ext4 has the option errors. The host overrules it there, and the kernel
// refuses it for the other types.
func TestErrorsIsOfExt4(t *testing.T) {
	for _, c := range []struct {
		fstype, option, warning string
		unknown                 bool
	}{
		{"ext4", "errors=continue", "mount-options: the host mounts it with errors=remount-ro in place of errors=continue; remove errors=continue", false},
		{"ext4", "errors=remount-ro", "", false},
		{"xfs", "errors=continue", "", true},
		{"btrfs", "errors=remount-ro", "", true},
		{"tmpfs", "errors", "", true},
		{"tmpfs", "suid", "mount-options: the host mounts it with nosuid in place of suid; remove suid", false},
		{"xfs", "noatime", "", false},
	} {
		if warning, unknown := Warning(c.fstype, []string{c.option}), Unknown(c.fstype, c.option); warning != c.warning || unknown != c.unknown {
			t.Errorf("%s of %s: %q, unknown %v", c.option, c.fstype, warning, unknown)
		}
	}
}
