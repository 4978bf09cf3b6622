package cli

import (
	"compress/gzip"
	"io"
	"os"
	"strings"
	"testing"
)

// Compressed user-data unpacks to the same message, and the warning about its
// size names --gzip only where that helps.
func TestUserDataIsCompressed(t *testing.T) {
	t.Chdir(t.TempDir())
	text := "version: 1\nmachines:\n  web:\n    type: lxd\n    image: debian/12\n    cloud-init:\n      user-data: |\n        #cloud-config\n" +
		strings.Repeat("        # the same line many times\n", 1000)
	if err := os.WriteFile("host.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	plain := run(t, nil, &fakeTerminal{}, nil, "", "user-data", "-f", "host.yaml")
	if plain.code != 0 || !strings.Contains(plain.stderr, "at most 16KiB of user-data; compress it with --gzip") {
		t.Errorf("plain: exit %d, %s", plain.code, plain.stderr)
	}
	packed := run(t, nil, &fakeTerminal{}, nil, "", "user-data", "-f", "host.yaml", "--gzip")
	if packed.code != 0 || strings.Contains(packed.stderr, "warning") {
		t.Errorf("packed: exit %d, %s", packed.code, packed.stderr)
	}
	r, err := gzip.NewReader(strings.NewReader(packed.stdout))
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if string(unpacked) != plain.stdout {
		t.Error("the unpacked message differs")
	}
}
