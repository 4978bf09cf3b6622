package persist

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The package's purge leaves the files that keep a NIC under a bridge, because
// the host may be reachable only through the bridge. It names these files, and
// none of the administrator's.
func TestPurgeNamesTheFilesOfBridges(t *testing.T) {
	script, err := os.ReadFile("../../debian/hostler.postrm")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(script), "if [ \"$1\" = purge ]; then\n")
	part, _, found := strings.Cut(part, "  # What it made in LXD")
	if !found {
		t.Fatalf("the script does not begin with the messages:\n%s", script)
	}
	for _, name := range []string{"networkd, static", "NetworkManager", "ifupdown", ""} {
		t.Run(name, func(t *testing.T) {
			root := host(t, map[string]string{
				"etc/systemd/network/05-hostler-mine.network":                        "[Match]\nName=eth9\n",
				"etc/network/if-up.d/hostler-mine":                                   "#!/bin/sh\n",
				"etc/NetworkManager/system-connections/05-hostler-mine.nmconnection": "[connection]\nid=mine\n",
				"var/lib/hostler/x":                                                  "",
			})
			var ours []string
			if c, known := hosts[name]; known {
				root = host(t, c.files)
				if _, _, err := writeBridge(root, bridge()); err != nil {
					t.Fatal(err)
				}
				ours = owned(root, "hostler", "br-lan")
			}
			sh := exec.Command("sh", "-e", "-c", strings.NewReplacer("/etc/", root+"/etc/", "/var/", root+"/var/").Replace(part))
			out, err := sh.CombinedOutput()
			if err != nil || name == "" != (len(ours) == 0) || strings.Contains(string(out), "reboot") != (len(ours) > 0) || strings.Contains(string(out), "mine") {
				t.Errorf("%v: %s", err, out)
			}
			for _, path := range ours {
				if !strings.Contains(string(out), path) {
					t.Errorf("%s is not named:\n%s", path, out)
				}
			}
		})
	}
}
