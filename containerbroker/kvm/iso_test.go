package kvm

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
	"hostler/internal/run"
)

// K3: the seed is media that others can read: its label and its files, by
// their names, are there as they were put in.
func TestSeedIsReadByOthers(t *testing.T) {
	m := machine()
	m.Guest = cloudinit.Guest{Hostname: "web", InstanceID: "iid-1", UserData: "#cloud-config\n" + strings.Repeat("# long\n", 1000)}
	m.NICs = []containerbroker.NIC{{Name: "eth0", Bridge: "br0", MAC: "00:16:3e:00:00:01", Addresses: []string{"10.0.0.2/24"}, Static: true}}
	image, sum, err := seedOf(m, "uuid")
	if err != nil || len(sum) != 64 {
		t.Fatal(err)
	}
	again, same, _ := seedOf(m, "uuid")
	if !bytes.Equal(image, again) || sum != same {
		t.Error("the same machine gives another seed")
	}
	for _, part := range []string{"cidata", "USER-DATA", `"instance-id": "iid-1"`, `"local-hostname": "web"`, `"macaddress": "00:16:3e:00:00:01"`, `"set-name": "eth0"`, strings.Repeat("# long\n", 1000)} {
		if !bytes.Contains(image, []byte(part)) {
			t.Errorf("no %.40q in it", part)
		}
	}
	if _, err := os.Stat("/usr/bin/isoinfo"); err != nil {
		t.Skip("isoinfo is not installed")
	}
	file := filepath.Join(t.TempDir(), "seed.iso")
	if err := os.WriteFile(file, image, 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(args ...string) string {
		result, err := run.Host{}.Run(t.Context(), run.Command{Path: "/usr/bin/isoinfo", Args: append(args, "-i", file)})
		if err != nil {
			t.Fatal(err)
		}
		return string(result.Stdout)
	}
	if list := read("-J", "-f"); list != "/meta-data\n/user-data\n/network-config\n" {
		t.Errorf("it holds %q", list)
	}
	told, err := cloudinit.UserData(m.Guest)
	if err != nil {
		t.Fatal(err)
	}
	if data := read("-J", "-x", "/user-data"); data != string(told) {
		t.Errorf("user-data of %d bytes", len(data))
	}
}

func TestSeedHasUserDataInAnyCase(t *testing.T) {
	image, _, err := seedOf(machine(), "uuid")
	if err != nil || !bytes.Contains(image, []byte("#cloud-config\n{}")) || !bytes.Contains(image, []byte(`"instance-id": "uuid"`)) {
		t.Errorf("%v", err)
	}
}
