package kvm

import (
	"bytes"
	"strings"
	"testing"

	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
	"hostler/internal/fault"
)

func seeded() containerbroker.Machine {
	m := machine()
	m.Guest = cloudinit.Input{Hostname: "web", InstanceID: "iid-1", UserData: "#cloud-config\n" + strings.Repeat("# long\n", 1000)}
	m.NICs = []containerbroker.NIC{{Name: "eth0", Bridge: "br0", MAC: "00:16:3e:00:00:01", Addresses: []string{"10.0.0.2/24"}, Static: true}}
	return m
}

// K3: the seed holds all of cloud-init's files, and the same machine always
// gives the same seed.
func TestSeed(t *testing.T) {
	m := seeded()
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
}

func TestSeedHasUserDataInAnyCase(t *testing.T) {
	image, _, err := seedOf(machine(), "uuid")
	if err != nil || !bytes.Contains(image, []byte("#cloud-config\n{}")) || !bytes.Contains(image, []byte(`"instance-id": "uuid"`)) {
		t.Errorf("%v", err)
	}
}

// A guest that gets another network-config keeps its instance-id and its
// user-data. Only with rerun does cloud-init repeat the first boot, each time
// under a new instance-id.
func TestSeedKeepsTheFirstBoot(t *testing.T) {
	m := machine()
	m.Guest = cloudinit.Input{Hostname: "web", UserData: "#!/bin/sh\necho first\n"}
	m.NICs = []containerbroker.NIC{{Name: "eth0", Bridge: "br0", MAC: "00:16:3e:00:00:01", Static: true, Addresses: []string{"10.0.0.2/24"}}}
	seed, _, err := seedOf(m, "uuid")
	if err != nil {
		t.Fatal(err)
	}
	m.Guest.UserData, m.NICs[0].Addresses = "#!/bin/sh\necho second\n", []string{"10.0.0.3/24"}
	for _, step := range []struct {
		rerun    bool
		id, user string
	}{{false, `"uuid"`, "echo first"}, {true, `"uuid-2"`, "echo second"}, {false, `"uuid-2"`, "echo second"}, {true, `"uuid-3"`, "echo second"}} {
		if seed, _, err = seedAfter(seed, m, "uuid", step.rerun); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{`"instance-id": ` + step.id, step.user, "10.0.0.3/24", `"when": ["boot-new-instance", "boot"]`} {
			if !bytes.Contains(seed, []byte(part)) {
				t.Errorf("rerun %v: no %q in it", step.rerun, part)
			}
		}
	}
	if _, _, err := seedAfter([]byte("cut short"), m, "uuid", false); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("an unreadable seed: %v", err)
	}
}
