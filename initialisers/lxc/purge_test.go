package lxc

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The package's purge removes what containers of LXC need only where there are
// none, also in the configured folder, and it names the pool that stays there.
func TestPurgeLooksInTheConfiguredFolder(t *testing.T) {
	script, err := os.ReadFile("../../debian/hostler.postrm")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(script), "  # Where LXC has no containers")
	part, _, found := strings.Cut(part, "  # What machines keep")
	if !found {
		t.Fatalf("the script has no part for LXC:\n%s", script)
	}
	for name, c := range map[string]struct {
		folder string // of the pool, "" for no pool
		config string // of a container, "" for none
		kept   bool
	}{
		"usual folder":                      {"/var/lib/lxc", "/var/lib/lxc/web/config", true},
		"usual folder, empty":               {"/var/lib/lxc", "", false},
		"another folder":                    {"/srv/my lxc", "/srv/my lxc/web/config", true},
		"another folder, empty":             {"/srv/my lxc", "", false},
		"another folder, usual folder used": {"/srv/my lxc", "/var/lib/lxc/web/config", true},
		"no pool":                           {"", "/var/lib/lxc/web/config", true},
		"no pool, empty":                    {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			i, root := on(t, map[string]string{"/etc/apparmor.d/lxc-hostler": ""})
			write := func(path, text string) {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.config != "" {
				write(root+c.config, "")
			}
			if c.folder != "" {
				i.opts.Path = c.folder
				write(i.own("pool.img"), "")
				write(filepath.Join(root, "var/lib/hostler/lxc-pool"), i.own()+"\n")
			}
			roots := strings.NewReplacer("/var/", root+"/var/", "/etc/", root+"/etc/", "/run/systemd/system", root+"/none")
			out, err := exec.Command("sh", "-e", "-c", "#"+roots.Replace(part)).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if _, err := os.Stat(root + "/etc/apparmor.d/lxc-hostler"); (err == nil) != c.kept {
				t.Errorf("the profile is there: %v", err == nil)
			}
			if want := c.folder != ""; strings.Count(string(out), i.own()+";") != 1 == want {
				t.Errorf("the pool is named wrongly: %s", out)
			}
		})
	}
}
