//go:build integration

package deb_test

import (
	"strings"
	"testing"

	"hostler/tests/harness"
)

func TestTwoBuildsAreEqual(t *testing.T) {
	sum := func(file string) string { return strings.Fields(harness.Run(t, "sha256sum", file))[0] }
	if one, two := sum(harness.Package(t, "")), sum(harness.BuildPackage(t, "")); one != two {
		t.Errorf("two builds of one source differ: %s, %s", one, two)
	}
}

func TestLintian(t *testing.T) {
	out, err := harness.Try(nil, "lintian", "--allow-root", "--fail-on", "error,warning", harness.Package(t, ""))
	if err != nil {
		t.Error(err)
	}
	t.Log(out)
}

func TestContents(t *testing.T) {
	list := harness.Run(t, "dpkg-deb", "-c", harness.Package(t, ""))
	for _, want := range []string{
		"./usr/bin/hostler\n", "./usr/bin/hostlerd\n",
		"./usr/lib/systemd/system/hostlerd.service\n", "./usr/lib/systemd/system/hostler-provisioner@.service\n",
		"./usr/lib/systemd/system/hostler-provisioner@lxd.service.d/10-lxd.conf\n", "./usr/lib/tmpfiles.d/hostler.conf\n",
		"./usr/lib/systemd/system/hostler-cloud-init.service\n", "./usr/share/hostler/cloud-init/hostler_part_handler.py\n", "./usr/share/hostler/cloud-init/hostler-wait\n",
		"./etc/cloud/clean.d/50-hostler\n", "./usr/share/doc/hostler/examples/cloud-init/packages.yaml\n", "./usr/share/man/man1/hostler-user-data.1.gz\n",
		"./etc/hostler/hostler.yaml\n", "./usr/share/hostler/apparmor/lxc-hostler\n", "./usr/lib/udev/rules.d/59-hostler.rules\n", "./etc/hostler/conf.d/\n",
		"./usr/share/man/man1/hostler.1.gz\n", "./usr/share/man/man8/hostlerd.8.gz\n",
		"./usr/share/man/man5/hostler-config.5.gz\n", "./usr/share/man/man5/hostler.yaml.5.gz\n",
		"./usr/share/doc/hostler/manual.md\n", "./usr/share/doc/hostler/examples/full.yaml\n",
		"./usr/share/bash-completion/completions/hostler\n", "./usr/share/zsh/vendor-completions/_hostler\n",
		"./usr/share/fish/vendor_completions.d/hostler.fish\n", "./usr/share/doc/hostler/hostler.cdx.json\n",
	} {
		if !strings.Contains(list, want) {
			t.Errorf("the package lacks %s", strings.TrimSpace(want))
		}
	}
	for line := range strings.Lines(list) {
		mode, _, _ := strings.Cut(line, " ")
		if strings.ContainsAny(mode, "sS") {
			t.Errorf("a setuid or setgid file: %s", line)
		}
		if strings.HasSuffix(line, "/clean.d/50-hostler\n") && mode != "-rwxr-xr-x" {
			t.Errorf("cloud-init does not run %s", line)
		}
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
