//go:build integration

package kvm

import (
	"os"
	"path/filepath"
	"testing"

	"hostler/containerbroker/cloudinit"
	"hostler/internal/run"
)

// A definition built from hostile texts is valid by libvirt's own schema.
func TestDomainValidates(t *testing.T) {
	text := written(t, hostile())
	file := filepath.Join(t.TempDir(), "domain.xml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := tool(t, "/usr/bin/virt-xml-validate", file, "domain"); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, text)
	}
}

// K3: other tools read the seed's files unchanged, by their names.
func TestSeedIsReadByOtherTools(t *testing.T) {
	m := seeded()
	image, _, err := seedOf(m, "uuid")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "seed.iso")
	if err := os.WriteFile(file, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := tool(t, "/usr/bin/isoinfo", "-J", "-f", "-i", file); err != nil || list != "/meta-data\n/user-data\n/vendor-data\n/network-config\n" {
		t.Errorf("it holds %q, %v", list, err)
	}
	told, err := cloudinit.UserData(m.Guest)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := tool(t, "/usr/bin/isoinfo", "-J", "-x", "/user-data", "-i", file); err != nil || data != string(told) {
		t.Errorf("user-data of %d bytes, %v", len(data), err)
	}
}

func tool(t *testing.T, path string, args ...string) (string, error) {
	result, err := run.Host{}.Run(t.Context(), run.Command{Path: path, Args: args})
	return string(result.Stdout), err
}
