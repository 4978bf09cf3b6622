package images

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A guest with a static device is online with its address and default route,
// although networkd still waits for a router; any other guest is online when
// networkd says so.
func TestGuestsAreOnlineWithTheirStaticAddress(t *testing.T) {
	const static = "[Match]\nName=eth0\n\n[Network]\nDHCP=no\n\n[Address]\nAddress=10.0.0.7/24\n\n"
	for name, c := range map[string]struct {
		network, address, route string
		early                   bool
	}{
		"address and route":       {static + "[Route]\nGateway=10.0.0.1\n", "inet 10.0.0.7/24", "default via 10.0.0.1", true},
		"no route declared":       {static, "inet 10.0.0.7/24", "", true},
		"route is missing":        {static + "[Route]\nGateway=10.0.0.1\n", "inet 10.0.0.7/24", "", false},
		"address is missing":      {static, "", "", false},
		"asks DHCP":               {"[Network]\nDHCP=ipv4\n", "inet 10.0.0.7/24", "", false},
		"nothing from cloud-init": {"", "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put := func(path, content string) string {
				path = filepath.Join(dir, path)
				if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
					t.Fatal(err)
				}
				return path
			}
			if c.network != "" {
				put("10-cloud-init-eth0.network", c.network)
			}
			put("ip", "#!/bin/sh\ncase \"$*\" in *address*) echo '"+c.address+"' ;; *) echo '"+c.route+"' ;; esac | grep . || true\n")
			// networkd's program ends when the test lets it: at once, unless the
			// script has to end first.
			end := filepath.Join(dir, "end")
			if !c.early {
				put("end", "")
			}
			waiter := put("waiter", "#!/bin/sh\n[ \"$*\" = '--any --timeout=10' ] || exit 2\nwhile [ ! -e "+end+" ]; do sleep 0.05; done\necho >"+dir+"/waited\n")
			script, err := embedded.ReadFile("debian/files/wait-online.sh")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("/bin/sh", "-c", string(script), "wait-online", dir, waiter)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if _, err := os.Stat(filepath.Join(dir, "waited")); (err != nil) != c.early {
				t.Errorf("networkd's answer was awaited: %v", err == nil)
			}
		})
	}
}
