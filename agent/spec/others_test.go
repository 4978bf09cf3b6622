package spec

import (
	"strings"
	"testing"
)

// Machines may share a filesystem of another document, which says whether it is
// shared.
func TestMachinesShareTheFilesystemOfAnotherDocument(t *testing.T) {
	const machine = "{type: lxd, image: debian/12, storage: [{filesystem: www, path: /srv}]}\n"
	text := []byte("version: 1\nmachines:\n  one: " + machine + "  two: " + machine)
	if _, _, err := ParseAlone("site", text); err != nil {
		t.Errorf("alone: %v", err)
	}
	for options, want := range map[string]string{"shared: true, ": "", "": `machine "one" has the filesystem "www" already (line 3)`} {
		other := parsed(t, "storage", "filesystems: {www: {"+options+"provider: rootfs, size: 64MiB}}\n")
		_, err := ParseAmong("site", text, Others{Declared: other, Where: map[string]string{}})
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", options, err)
		}
	}
}
