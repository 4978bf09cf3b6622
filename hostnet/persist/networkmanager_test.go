package persist

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/internal/fault"
	"hostler/internal/paths"
)

const (
	bridgeProfile = nmDir + "/05-hostler-br-lan.nmconnection"
	portProfile   = nmDir + "/05-hostler-eth0.nmconnection"
)

// A NIC without a profile that a bridge's can be derived from is reported.
func TestProfilesThatAreReported(t *testing.T) {
	for want, file := range map[string]string{
		"has no active profile":          "",
		"profile is not in a file":       "[connection]\nuuid=u-other\ntype=ethernet\n",
		"profile is of the type wifi":    "[connection]\nuuid=u1\ntype=wifi\n",
		"another program has configured": "[connection]\nuuid=u1\ntype=ethernet\n\n[.nmmeta]\nexternal=true\n",
	} {
		active := ""
		if file != "" {
			active = "connection-uuid=u1\n"
		}
		root := host(t, map[string]string{"run/NetworkManager/devices/2": "managed=true\n" + active, nmDir + "/a.nmconnection": file})
		m, changed, err := writeBridge(root, bridge())
		if m != networkManager || changed || !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, %v", want, m, changed, err)
		}
		k := Keeper{Paths: paths.New(root, "", "", t.TempDir())}
		if why := k.Obstacle(NIC{Name: "eth0", Index: 2, Leased: true}); !strings.Contains(why, want) {
			t.Errorf("%s: refused because %q", want, why)
		}
	}
}

// Only the configuration of a network's first NIC moves to the bridge.
func TestNetworkManagersLaterNICIsAnObstacle(t *testing.T) {
	k := Keeper{Paths: paths.New(host(t, hosts["NetworkManager"].files), "", "", t.TempDir())}
	for later, want := range map[bool]string{false: "", true: "only the configuration of the network's first interface can move to the bridge"} {
		why := k.Obstacle(NIC{Name: "eth0", Index: 2, Leased: true, Later: later})
		if want == "" && why != "" || !strings.Contains(why, want) {
			t.Errorf("later %v: %q", later, why)
		}
	}
}

// Profiles that a user changed with nmcli, which drops comments and reorders keys, stay
// ours, with the change. Only root may read profiles. Declared addresses follow the
// declaration.
func TestProfilesFollowThemselves(t *testing.T) {
	root := host(t, hosts["NetworkManager"].files)
	b := bridge()
	write := func() {
		t.Helper()
		if _, _, err := writeBridge(root, b); err != nil {
			t.Fatal(err)
		}
	}
	write()
	for _, name := range []string{bridgeProfile, portProfile} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	path := filepath.Join(root, bridgeProfile)
	_, text, _ := strings.Cut(tree(t, root)[bridgeProfile], "\n")
	text = strings.NewReplacer("dns=192.0.2.53;", "dns=192.0.2.54;", "[ipv6]\n", "[ipv6]\ndns-priority=7\n").Replace(text)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// The administrator's profile goes, e.g. one of NetworkManager's own at a boot.
	if err := os.Remove(filepath.Join(root, "run/NetworkManager/system-connections/Office.nmconnection")); err != nil {
		t.Fatal(err)
	}
	if names := bridges(root, "hostler"); len(names) != 1 {
		t.Errorf("the bridges are %v", names)
	}
	b.Addresses = []netip.Prefix{netip.MustParsePrefix("2001:db8::1/64")}
	write()
	text = tree(t, root)[bridgeProfile]
	for _, want := range []string{b.mark(), "dns=192.0.2.54;\n", "dns-priority=7\n", "address1=192.0.2.77/24\n", "address1000=2001:db8::1/64\nmethod=manual\n", "hostler.origin=u-office\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "10.20.0.1") {
		t.Errorf("an address stays that is not declared:\n%s", text)
	}
	b.Addresses = nil
	write()
	if text = tree(t, root)[bridgeProfile]; !strings.Contains(text, "[ipv6]\ndns-priority=7\nroute-metric=100\nmethod=disabled\n") {
		t.Errorf("without an address:\n%s", text)
	}
	if _, changed, err := writeBridge(root, b); err != nil || changed {
		t.Errorf("the second write: %v, %v", changed, err)
	}
}

// NetworkManager's own records tell which bridges it makes again. A NIC that Pause took
// from NetworkManager is not one of them, and its former record counts.
func TestTheRecordOfAPausedNIC(t *testing.T) {
	files := hosts["NetworkManager"].files
	root := host(t, files)
	k := Keeper{Paths: paths.New(root, "", "", t.TempDir()), Namespace: "hostler"}
	if err := k.writeMark("eth0", "origin=u-office\nroute-metric-default-effective=77\n"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "run/NetworkManager/devices/2"), []byte("managed=false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := k.client("eth0"); c != nil || err != nil {
		t.Errorf("the client is %+v, %v", c, err)
	}
	b := bridge()
	b.paused = k.record("eth0")
	if m, changed, err := writeBridge(root, b); m != networkManager || !changed || err != nil {
		t.Fatalf("%q, %v, %v", m, changed, err)
	}
	if text := tree(t, root)[bridgeProfile]; !strings.Contains(text, "route-metric=77\n") {
		t.Error(text)
	}
	if all := k.Restored(); len(all) > 0 {
		t.Errorf("paused: %v", all)
	}
	if err := os.Remove(k.mark("eth0")); err != nil {
		t.Fatal(err)
	}
	if all := k.Restored(); len(all) != 1 || all["br-lan"] != "eth0" {
		t.Errorf("%v", all)
	}
	if _, err := disable(root, "hostler", "br-lan"); err != nil || len(k.Restored()) > 0 {
		t.Errorf("disabled: %v, %v", k.Restored(), err)
	}
}

// ofNetworkManager is a host whose NIC NetworkManager puts under br-lan by our profiles.
func ofNetworkManager(t *testing.T) (root string, k *Keeper) {
	t.Helper()
	root = host(t, hosts["NetworkManager"].files)
	if _, _, err := writeBridge(root, bridge()); err != nil {
		t.Fatal(err)
	}
	return root, &Keeper{Paths: paths.New(root, "", "", t.TempDir()), Namespace: "hostler"}
}

// Without NetworkManager, the agent makes the bridge again.
func TestNothingIsRestoredWithoutNetworkManager(t *testing.T) {
	root, k := ofNetworkManager(t)
	if all := k.Restored(); all["br-lan"] != "eth0" {
		t.Fatal(all)
	}
	if err := os.RemoveAll(filepath.Join(root, "run/NetworkManager")); err != nil {
		t.Fatal(err)
	}
	if all := k.Restored(); len(all) != 0 {
		t.Error(all)
	}
}

// A NIC that comes from another bridge of ours, also after a boot, brings the addressing
// of that bridge.
func TestAddressingGoesFromBridgeToBridge(t *testing.T) {
	for record, text := range map[string]string{
		"our profile is active": "managed=true\nconnection-uuid=" + profileID("hostler", "eth0") + "\n",
		"the NIC was taken":     "managed=false\n",
	} {
		root, k := ofNetworkManager(t)
		for name, content := range map[string]string{
			"run/NetworkManager/devices/2":                              text,
			"run/NetworkManager/system-connections/Office.nmconnection": "", // one of NetworkManager's own, gone at a boot
		} {
			if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.writeMark("eth0", "origin=u-office\n"); err != nil {
			t.Fatal(err)
		}
		b := bridge()
		b.Name, b.Addresses, b.paused = "br-new", nil, k.record("eth0")
		_, _, err := writeBridge(root, b)
		files := tree(t, root)
		up, port := files[nmDir+profileFile("br-new")], files[portProfile]
		if err != nil || !strings.Contains(up, "address1=192.0.2.77/24\n") || strings.Contains(up, "10.20.0.1") || !strings.Contains(port, "wake-on-lan=64") || !strings.Contains(port, profileID("hostler", "br-new")) {
			t.Errorf("%s: %v\n%s\n%s", record, err, up, port)
		}
	}
}

// A NIC that is a port of another bridge than our profiles say stays there until Persist
// has written them anew, and one that none of them names is no paused client.
func TestResumeLeavesAPortAlone(t *testing.T) {
	root, k := ofNetworkManager(t)
	for nic, master := range map[string]string{"eth0": "br-new", "eth1": "br-lan"} {
		dir := filepath.Join(root, "sys/class/net", nic)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../"+master, filepath.Join(dir, "master")); err != nil {
			t.Fatal(err)
		}
		if err := k.writeMark(nic, "origin=u-office\n"); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := k.Resume(t.Context(), func(string) bool { return false }); left || err != nil {
		t.Errorf("left %v, %v", left, err) // nmcli would have failed
	}
}

// NetworkManager numbers the addresses of a changed profile anew. One that hostler added
// goes with its declaration; one that the administrator has too stays.
func TestAddedAddressesGo(t *testing.T) {
	root, _ := ofNetworkManager(t)
	b := bridge()
	b.Addresses = append(b.Addresses, netip.MustParsePrefix("192.0.2.77/24"))
	if _, _, err := writeBridge(root, b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, bridgeProfile)
	text := strings.ReplaceAll(tree(t, root)[bridgeProfile], "address1000=", "address2=")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil || strings.Count(text, "192.0.2.77") != 1 {
		t.Fatalf("%v\n%s", err, text)
	}
	b.Addresses = nil
	if _, _, err := writeBridge(root, b); err != nil {
		t.Fatal(err)
	}
	if text = tree(t, root)[bridgeProfile]; strings.Contains(text, "10.20.0.1") || !strings.Contains(text, "address1=192.0.2.77/24") {
		t.Error(text)
	}
}
