//go:build integration

package cloudinit_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hostler/tests/harness"
)

// The errors of parts that are not used reach the script that cloud-init runs at the
// end of the boot, whose failure is an error in the result of each release.
func TestErrorsReachTheScript(t *testing.T) {
	two := strings.Replace(part("text/hostler-config", "a.yaml", web), "--b0--", "--b0\nContent-Type: text/hostler-config\nContent-Disposition: attachment; filename=\"a.yml\"\n\nother\n--b0--", 1)
	for _, release := range releases(t) {
		for userData, want := range map[string]string{
			"#cloud-config\n{}\n": "",
			strings.Replace(web, "version", "# f\xfcr\nversion", 1): "user-data is not used, because its text is not UTF-8",
			two: "the parts a.yaml and a.yml have the same name",
			strings.Replace(part("text/hostler-config", "web.yaml", web), "Content-Disp", "X-Hostler-Wait: soon\nContent-Disp", 1): "X-Hostler-Wait of web.yaml takes a time",
		} {
			m := newMachine(t, release).installHandler().installProgram()
			m.boot(userData)
			out, err := harness.Try([]string{"HOSTLER_SOCKET=" + filepath.Join(m.root, "none")}, filepath.Join(m.root, "usr/bin/hostler"), "internal", "boot-wait",
				"--request", filepath.Join(m.root, "run/cloud-init/hostler-wait"), "--config", filepath.Join(m.root, "etc/hostler/hostler.yaml"),
				"--errors", filepath.Join(m.root, "run/cloud-init/hostler-errors"))
			if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: with %q the script printed %q, %v, want %q", release, userData, out, err, want)
			}
		}
	}
}

// The entry of an archive without a file name keeps its file when another entry comes.
func TestUnnamedPart(t *testing.T) {
	const other = "- type: text/cloud-config\n  content: |\n    #cloud-config\n    {}\n"
	for _, release := range releases(t) {
		t.Run(release, func(t *testing.T) {
			m := newMachine(t, release).installHandler().installProgram()
			for _, c := range []struct{ before, text string }{{"", web}, {other, strings.Replace(web, "debian/12", "debian/13", 1)}} {
				said := m.boot("#cloud-config-archive\n" + c.before + "- type: text/hostler-config\n  content: |\n" + harness.Indented(c.text))
				if got := m.files(); said != "" || len(got) != 1 || got["cloud-init-user-data.yaml"] != c.text {
					t.Errorf("conf.d has %q, and cloud-init said %q", got, said)
				}
			}
		})
	}
}

// A declaration without a name that is gone keeps its file, and so does the one after
// it.
func TestUnnamedPartIsGone(t *testing.T) {
	for _, release := range releases(t) {
		t.Run(release, func(t *testing.T) {
			m := newMachine(t, release).installHandler().installProgram()
			first, second := "file://"+m.write("web", web)+"\n", "file://"+m.write("lan", lan)+"\n"
			empty := "file://" + m.write("empty", "") + "\n"
			for _, included := range []string{first + second, second, empty + second} {
				said, got := m.boot("#include\n"+included), m.files()
				if len(got) != 2 || got["cloud-init-user-data.yaml"] != web || got["cloud-init-user-data-2.yaml"] != lan || said != "" {
					t.Errorf("with %q conf.d has %q, and cloud-init said %q", included, got, said)
				}
			}
			changed := strings.Replace(web, "debian/12", "debian/13", 1)
			said := m.boot("#include\nfile://" + m.write("changed", changed) + "\n" + second)
			if got := m.files(); len(got) != 2 || got["cloud-init-user-data.yaml"] != changed || got["cloud-init-user-data-2.yaml"] != lan || said != "" {
				t.Errorf("after a change conf.d has %q, and cloud-init said %q", got, said)
			}
			wider := strings.Replace(lan, "br-lan", "br-wide", 1)
			said = m.boot("#include\nfile://" + m.write("wider", wider) + "\n")
			if got := m.files(); len(got) != 2 || got["cloud-init-user-data.yaml"] != changed || got["cloud-init-user-data-2.yaml"] != wider || said != "" {
				t.Errorf("after a change without the first conf.d has %q, and cloud-init said %q", got, said)
			}
		})
	}
}

// Two declarations without names have an object in common. The second keeps its file
// when it changes while the first is gone.
func TestUnnamedPartsWithACommonObject(t *testing.T) {
	first := lan + "machines:\n  web: {type: lxd, image: debian/12}\n"
	second := strings.Replace(first, "web", "db", 1)
	changed := strings.Replace(second, "debian/12", "debian/13", 1)
	for _, release := range releases(t) {
		m := newMachine(t, release).installHandler().installProgram()
		m.boot("#include\nfile://" + m.write("first", first) + "\nfile://" + m.write("second", second) + "\n")
		said := m.boot("#include\nfile://" + m.write("changed", changed) + "\n")
		if got := m.files(); len(got) != 2 || got["cloud-init-user-data.yaml"] != first || got["cloud-init-user-data-2.yaml"] != changed || said != "" {
			t.Errorf("%s: conf.d has %q, and cloud-init said %q", release, got, said)
		}
	}
}

// A part without a name keeps the file that an earlier version named after
// cloud-init's number, also when its text changes.
func TestUnnamedPartOfAnEarlierVersion(t *testing.T) {
	for _, release := range releases(t) {
		for _, text := range []string{web, strings.Replace(web, "debian/12", "debian/13", 1)} {
			m := newMachine(t, release).installHandler().installProgram()
			m.write("etc/hostler/conf.d/cloud-init-part-001.yaml", web)
			said := m.boot("#cloud-config-archive\n- type: text/hostler-config\n  content: |\n" + harness.Indented(text))
			if got := m.files(); len(got) != 1 || got["cloud-init-part-001.yaml"] != text || said != "" {
				t.Errorf("%s: conf.d has %q, and cloud-init said %q", release, got, said)
			}
		}
	}
}

// A pipe in conf.d does not hold up the boot: the handler replaces its own file, and
// the check names another.
func TestPipeInTheFolder(t *testing.T) {
	for _, release := range releases(t) {
		m := newMachine(t, release).installHandler().installProgram()
		other := filepath.Join(m.confD, "other.yaml")
		err := errors.Join(os.MkdirAll(m.confD, 0o755), syscall.Mkfifo(filepath.Join(m.confD, "cloud-init-user-data.yaml"), 0o600), syscall.Mkfifo(other, 0o600))
		if err != nil {
			t.Fatal(err)
		}
		said := m.boot(web)
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
		if got := m.files(); len(got) != 1 || got["cloud-init-user-data.yaml"] != web || !strings.Contains(said, "other.yaml: it is not a file") {
			t.Errorf("%s: conf.d has %q, and cloud-init said %q", release, got, said)
		}
	}
}

// The handler of the user-data writes nothing at a later boot when the package was
// purged, and writes again when it is installed.
func TestPurgedPackage(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host.yaml")
	if err := os.WriteFile(host, []byte(web), 0o600); err != nil {
		t.Fatal(err)
	}
	message := harness.Run(t, filepath.Join(harness.Binaries(t, ""), "hostler"), "user-data", "-q", "-f", host, "--deb", "https://example.org/h.deb#sha256="+strings.Repeat("0a", 32))
	for _, release := range releases(t) {
		m := newMachine(t, release)
		userData := m.replaced(message, false)
		for i, files := range []int{1, 0, 1} {
			if i == 2 {
				m.installProgram()
			}
			if said := m.boot(userData); said != "" || len(m.files()) != files {
				t.Errorf("%s: at boot %d conf.d has %q, and cloud-init said %q", release, i+1, m.files(), said)
			}
			if err := os.RemoveAll(filepath.Dir(m.confD)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
