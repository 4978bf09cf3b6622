//go:build integration

package cloudinit_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hostler/internal/parthandler"
	"hostler/tests/harness"
)

// releases are the folders of tests/prepare with the code of cloud-init.
func releases(t *testing.T) (all []string) {
	t.Helper()
	for _, name := range []string{"debian-12", "debian-13", "ubuntu-24.04"} {
		_, err := os.Stat(filepath.Join(code(t, name), "cloudinit"))
		switch {
		case err == nil:
			all = append(all, name)
		case strings.HasPrefix(name, "debian"): // Ubuntu's archive may be out of reach
			t.Fatalf("cloud-init of %s is missing: run tests/prepare test", name)
		default:
			t.Logf("cloud-init of %s is not tried: its archive could not be reached", name)
		}
	}
	return all
}

// code returns the folder of a release's Python modules.
func code(t *testing.T, release string) string {
	t.Helper()
	return filepath.Join(harness.Root(t), ".cache/cloud-init", release, "usr/lib/python3/dist-packages")
}

// machine is the disk of a machine that boots with cloud-init of a release.
type machine struct {
	*testing.T
	release, root, confD string
	// handler is the handler's text, with the machine's own paths.
	handler string
	booted  bool
}

func newMachine(t *testing.T, release string) *machine {
	t.Helper()
	m := &machine{T: t, release: release, root: t.TempDir()}
	m.confD = filepath.Join(m.root, "etc/hostler/conf.d")
	if err := os.MkdirAll(filepath.Join(m.root, "run/cloud-init"), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(harness.Root(t), "internal/parthandler/hostler_part_handler.py"))
	if err != nil {
		t.Fatal(err)
	}
	m.handler = m.own(string(text))
	return m
}

// own replaces the paths of the host by those of the machine.
func (m *machine) own(text string) string {
	m.Helper()
	for _, path := range []string{`"/etc/hostler/conf.d"`, `"/etc/hostler/hostler.yaml"`, `"/usr/bin/hostler"`, `"/run/cloud-init/hostler-wait"`, `"/run/cloud-init/hostler-errors"`} {
		if !strings.Contains(text, path) {
			m.Fatalf("the handler has no %s", path)
		}
		text = strings.ReplaceAll(text, path, `"`+m.root+strings.Trim(path, `"`)+`"`)
	}
	return text
}

// installHandler does the same as hostler-cloud-init.service.
func (m *machine) installHandler() *machine {
	m.Helper()
	m.write("share/hostler_part_handler.py", m.handler)
	dir := filepath.Join(m.root, "lib/handlers")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(m.root, "share/hostler_part_handler.py"), filepath.Join(dir, "hostler_part_handler.py")); err != nil {
		m.Fatal(err)
	}
	return m
}

// installProgram puts the command hostler where the handler finds it.
func (m *machine) installProgram() *machine {
	m.Helper()
	dir := filepath.Join(m.root, "usr/bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(harness.Binaries(m, ""), "hostler"), filepath.Join(dir, "hostler")); err != nil {
		m.Fatal(err)
	}
	return m
}

func (m *machine) write(name, text string) string {
	m.Helper()
	path := filepath.Join(m.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.Fatal(err)
	}
	return path
}

// boot boots with user-data, and perhaps vendor-data, and returns the warnings
// and errors. At the first boot cloud-init consumes the data in two stages: in a
// process each, or since its release 25.1 in one process.
func (m *machine) boot(userData string, vendorData ...string) string {
	m.Helper()
	user, vendor := m.write("seed", userData), m.write("vendor", strings.Join(vendorData, ""))
	var out strings.Builder
	processes := [][]string{{"once-per-instance", "always"}}
	switch {
	case m.booted:
		processes = [][]string{{"always"}}
	case m.release == "debian-12":
		processes = [][]string{{"once-per-instance"}, {"always"}}
	}
	m.booted = true
	for _, frequencies := range processes {
		text, err := harness.Try([]string{"PYTHONPATH=" + code(m.T, m.release), "PYTHONDONTWRITEBYTECODE=1"},
			"/usr/bin/python3", append([]string{filepath.Join(harness.Root(m), "tests/cloudinit/testdata/boot.py"), m.root, user, vendor}, frequencies...)...)
		if err != nil {
			m.Fatalf("%v\n%s", err, text)
		}
		out.WriteString(text)
	}
	return out.String()
}

// files returns the texts of conf.d by file name.
func (m *machine) files() map[string]string {
	m.Helper()
	entries, err := os.ReadDir(m.confD)
	if err != nil && !os.IsNotExist(err) {
		m.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(m.confD, e.Name()))
		if err != nil {
			m.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

// inode returns the inode of a file of conf.d.
func (m *machine) inode(name string) uint64 {
	m.Helper()
	var stat syscall.Stat_t
	if err := syscall.Stat(filepath.Join(m.confD, name), &stat); err != nil {
		m.Fatal(err)
	}
	return stat.Ino
}

const web = "#hostler-config\nversion: 1\nmachines:\n  web: {type: lxd, image: debian/12}\n"

// part is a MIME message with one part.
func part(contentType, name, text string) string {
	return fmt.Sprintf("Content-Type: multipart/mixed; boundary=\"b0\"\nMIME-Version: 1.0\n\n--b0\n"+
		"Content-Type: %s; charset=\"utf-8\"\nContent-Disposition: attachment; filename=%q\n\n%s\n--b0--\n", contentType, name, text)
}

// oddName is a valid name of a declaration that no file of the handler has.
var oddName = "w--b" + strings.Repeat("x", 44) + "-y-"

// withMessage is a declaration with a MIME message, the user-data of its machine.
const withMessage = "#hostler-config\nversion: 1\nmachines:\n  web:\n    type: lxd\n    image: debian/12\n    cloud-init:\n      user-data: |\n" +
	"        Content-Type: multipart/mixed; boundary=\"b1\"\n        MIME-Version: 1.0\n\n        --b1\n        Content-Type: text/cloud-config\n\n        #cloud-config\n        {}\n        --b1--\n"

// TestUserData holds the cases of user-data, for cloud-init of each release.
func TestUserData(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host.yaml")
	if err := os.WriteFile(host, []byte(strings.Replace(web, "debian/12}", "debian/12} # für ✓", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	accented, err := os.ReadFile(host)
	if err != nil {
		t.Fatal(err)
	}
	message := harness.Run(t, filepath.Join(harness.Binaries(t, ""), "hostler"), "user-data", "-q", "-f", host, "--deb", "https://example.org/h.deb#sha256="+strings.Repeat("0a", 32))
	archive := "#cloud-config-archive\n- type: text/hostler-config\n  filename: web.yaml\n  content: |\n    " + strings.ReplaceAll(strings.TrimSpace(web), "\n", "\n    ") + "\n"
	for _, c := range []struct {
		name     string
		stock    bool // hostler is not in the image
		gzip     bool
		userData string
		files    map[string]string
		says     string // in the warnings; nothing else may be there
	}{
		{name: "bare, stock image", stock: true, userData: web, says: "Unhandled non-multipart (text/x-not-multipart) userdata"},
		{name: "bare", userData: web, files: map[string]string{"cloud-init-user-data.yaml": web}},
		{name: "bare, byte order mark", userData: "\ufeff" + web, files: map[string]string{"cloud-init-user-data.yaml": "\ufeff" + web}},
		{name: "other text", userData: "#hostler-configuration\n", says: "Unhandled non-multipart (text/x-not-multipart) userdata"},
		{name: "none", userData: ""},
		{name: "hostler user-data, stock image", stock: true, userData: message, files: map[string]string{"cloud-init-host.yaml": string(accented)}},
		{name: "hostler user-data", userData: message, files: map[string]string{"cloud-init-host.yaml": string(accented)}},
		{name: "hostler user-data --gzip, stock image", stock: true, gzip: true, userData: message, files: map[string]string{"cloud-init-host.yaml": string(accented)}},
		{name: "archive", userData: archive, files: map[string]string{"cloud-init-web.yaml": web}},
		{name: "part", userData: part("text/hostler-config", "My web_1.YAML", web), files: map[string]string{"cloud-init-my-web-1.yaml": web}},
		{name: "part with an odd name", userData: part("text/hostler-config", oddName+".yaml", web), files: map[string]string{parthandler.File(oddName): web}},
		{name: "part with a path", userData: part("text/hostler-config", "../../passwd", web), files: map[string]string{"cloud-init-passwd.yaml": web}},
		{name: "part, stock image", stock: true, userData: part("text/hostler-config", "web.yaml", web), says: "Unhandled unknown content-type (text/hostler-config) userdata"},
		{name: "plain part", userData: part("text/plain", "web.yaml", web), files: map[string]string{"cloud-init-web.yaml": web}},
		{name: "plain part of another text", userData: part("text/plain", "web.txt", "text\n"), says: "Unhandled unknown content-type (text/plain) userdata: 'text"},
		{name: "bare, with a message", userData: withMessage, files: map[string]string{"cloud-init-user-data.yaml": withMessage}},
		{name: "bare, Latin-1", userData: strings.Replace(web, "version", "# f\xfcr\nversion", 1), says: "user-data is not used, because its text is not UTF-8"},
		{name: "part with characters that are not encoded", userData: part("text/hostler-config", "web.yaml", web+"# für\n"), says: "web.yaml is not used, because its text is not UTF-8"},
		{
			name: "two parts of one name", says: "the parts a.yaml and A.yml have the same name",
			userData: strings.Replace(part("text/hostler-config", "a.yaml", web), "--b0--", "--b0\nContent-Type: text/hostler-config\nContent-Disposition: attachment; filename=\"A.yml\"\n\nother\n--b0--", 1),
			files:    map[string]string{"cloud-init-a.yaml": web},
		},
		{
			name: "error", userData: "#hostler-config\nversion: 1\nmachine: {}\n", says: "cloud-init-user-data.yaml:3:1: machine: the key \"machine\" is not known here",
			files: map[string]string{"cloud-init-user-data.yaml": "#hostler-config\nversion: 1\nmachine: {}\n"},
		},
	} {
		for _, release := range releases(t) {
			t.Run(release+"/"+c.name, func(t *testing.T) {
				m := newMachine(t, release)
				if !c.stock {
					m.installHandler().installProgram()
				}
				said := m.boot(m.replaced(c.userData, c.gzip))
				if got := m.files(); fmt.Sprint(got) != fmt.Sprint(c.files) && len(got)+len(c.files) > 0 {
					t.Errorf("conf.d has %q, want %q", got, c.files)
				}
				if c.says == "" && said != "" || !strings.Contains(said, c.says) {
					t.Errorf("cloud-init said %q, want %q", said, c.says)
				}
			})
		}
	}
}

// replaced returns user-data whose part handler has the machine's own paths.
func (m *machine) replaced(userData string, compress bool) string {
	if strings.Contains(userData, "#part-handler") {
		userData = m.own(userData)
	}
	if !compress {
		return userData
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(userData)); err != nil {
		m.Fatal(err)
	}
	if err := w.Close(); err != nil {
		m.Fatal(err)
	}
	return b.String()
}

// A file is replaced only if its bytes differ, and user-data that is gone
// changes nothing.
func TestLaterBoots(t *testing.T) {
	for _, release := range releases(t) {
		t.Run(release, func(t *testing.T) {
			m := newMachine(t, release).installHandler()
			const name = "cloud-init-user-data.yaml"
			m.boot(web)
			first := m.inode(name)
			if info, err := os.Stat(filepath.Join(m.confD, name)); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("the file is %v, %v", info.Mode(), err)
			}
			m.boot(web)
			if m.inode(name) != first {
				t.Error("the same user-data replaced the file")
			}
			for _, gone := range []string{"", "#cloud-config\n{}\n"} {
				m.boot(gone)
				if got := m.files(); got[name] != web || len(got) != 1 {
					t.Errorf("after the user-data %q conf.d has %q", gone, got)
				}
			}
			changed := strings.Replace(web, "debian/12", "debian/13", 1)
			m.boot(changed)
			if got := m.files(); got[name] != changed || len(got) != 1 || m.inode(name) == first {
				t.Errorf("after a change conf.d has %q", got)
			}
		})
	}
}

// The header X-Hostler-Wait of the parts reaches the script that waits at the end
// of the boot, and without the header that there is a part.
func TestWait(t *testing.T) {
	two := func(first, second string) string {
		text := strings.Replace(part("text/hostler-config", "a.yaml", web), "Content-Disp", first+"Content-Disp", 1)
		return strings.Replace(text, "--b0--", "--b0\nContent-Type: text/hostler-config\n"+second+"Content-Disposition: attachment; filename=\"b.yaml\"\n\n"+web+"\n--b0--", 1)
	}
	for _, release := range releases(t) {
		t.Run(release, func(t *testing.T) {
			m := newMachine(t, release).installHandler()
			file := m.write("run/cloud-init/hostler-wait", "")
			for _, c := range []struct{ userData, want, says string }{
				{two("X-Hostler-Wait: 20m\n", ""), "20m\n0s\n", ""},
				{two("X-Hostler-Wait: 20m\n", "X-Hostler-Wait: 1h30m\n"), "20m\n1h30m\n", ""},
				{two("x-hostler-WAIT: 20m\n", ""), "20m\n0s\n", ""},
				{strings.NewReplacer("b.yaml", "a.yaml", "\n"+web+"\n--b0--", "\nother\n--b0--").Replace(two("", "X-Hostler-Wait: 20m\n")), "0s\n20m\n", "the parts a.yaml and a.yaml"},
				{two("", ""), "0s\n", ""},
				{"#cloud-config\n{}\n", "", ""},
				{two("X-Hostler-Wait: soon\n", ""), "0s\n", "X-Hostler-Wait of a.yaml takes a time like 20m, not soon"},
			} {
				m.write("run/cloud-init/hostler-wait", "")
				said := m.boot(c.userData)
				got, err := os.ReadFile(file)
				if err != nil || string(got) != c.want {
					t.Errorf("the times are %q, %v, want %q", got, err, c.want)
				}
				if !strings.Contains(said, c.says) || c.says == "" && said != "" {
					t.Errorf("cloud-init said %q, want %q", said, c.says)
				}
			}
		})
	}
}

// Included declarations without a name have a file each, and the same ones at later
// boots, when other parts come and go.
func TestIncludedDeclarations(t *testing.T) {
	for _, release := range releases(t) {
		t.Run(release, func(t *testing.T) {
			m := newMachine(t, release).installHandler().installProgram()
			first, second := "file://"+m.write("web", web)+"\n", "file://"+m.write("lan", lan)+"\n"
			other := "file://" + m.write("other", "#cloud-config\n{}\n") + "\n"
			for _, included := range []string{first + second, first + second, other + first + other + second, first + first + second} {
				said, got := m.boot("#include\n"+included), m.files()
				if len(got) != 2 || got["cloud-init-user-data.yaml"] != web || got["cloud-init-user-data-2.yaml"] != lan || said != "" {
					t.Errorf("with %q conf.d has %q, and cloud-init said %q", included, got, said)
				}
			}
		})
	}
}

// A part that cannot be written has cloud-init wait too, and the error names the
// file.
func TestWaitForAPartThatCannotBeWritten(t *testing.T) {
	for _, release := range releases(t) {
		t.Run(release, func(t *testing.T) {
			m := newMachine(t, release).installHandler()
			file := m.write("run/cloud-init/hostler-wait", "")
			if err := os.MkdirAll(filepath.Join(m.confD, "cloud-init-web.yaml"), 0o755); err != nil {
				t.Fatal(err)
			}
			said := m.boot(strings.Replace(part("text/hostler-config", "web.yaml", web), "Content-Disp", "X-Hostler-Wait: 20m\nContent-Disp", 1))
			if got, err := os.ReadFile(file); err != nil || string(got) != "20m\n" {
				t.Errorf("the times are %q, %v", got, err)
			}
			if want := "cannot write " + filepath.Join(m.confD, "cloud-init-web.yaml"); !strings.Contains(said, want) {
				t.Errorf("cloud-init said %q, want %q", said, want)
			}
		})
	}
}

const lan = "#hostler-config\nversion: 1\nnetworks:\n  lan: {bridge: br-lan}\n"

// user-data wins over vendor-data, at the first boot and at later boots, and both
// set a time to wait.
func TestVendorData(t *testing.T) {
	waiting := func(text, time string) string {
		return strings.Replace(text, "Content-Disp", "X-Hostler-Wait: "+time+"\nContent-Disp", 1)
	}
	const clash = "the parts web.yaml and web.yml have the same name"
	for _, release := range releases(t) {
		t.Run(release, func(t *testing.T) {
			m := newMachine(t, release).installHandler().installProgram()
			file := m.write("run/cloud-init/hostler-wait", "")
			user, vendor := waiting(part("text/hostler-config", "web.yaml", web), "20m"), waiting(part("text/hostler-config", "web.yml", lan), "30m")
			for range 2 {
				said := m.boot(user, vendor)
				if got := m.files(); len(got) != 1 || got["cloud-init-web.yaml"] != web {
					t.Errorf("conf.d has %q", got)
				}
				if lines := strings.Split(strings.TrimSpace(said), "\n"); !strings.Contains(lines[0], clash) || strings.Contains(said, "web.yaml and web.yaml") {
					t.Errorf("cloud-init said %q, want %q", said, clash)
				}
				if got, err := os.ReadFile(file); err != nil || string(got) != "20m\n30m\n" {
					t.Errorf("the times are %q, %v", got, err)
				}
			}
			other := newMachine(t, release).installHandler().installProgram()
			if said := other.boot(part("text/hostler-config", "web.yaml", web), part("text/hostler-config", "lan.yaml", lan)); said != "" || len(other.files()) != 2 {
				t.Errorf("cloud-init said %q, and conf.d has %q", said, other.files())
			}
		})
	}
}

// The parts are checked together and with the other files of conf.d. The errors,
// which every user can read, repeat no text of the files.
func TestPartsAreCheckedTogether(t *testing.T) {
	inLan := strings.Replace(web, "debian/12}", "debian/12, networks: {eth0: {network: lan}}}", 1)
	for _, release := range releases(t) {
		t.Run(release, func(t *testing.T) {
			m := newMachine(t, release).installHandler().installProgram()
			both := strings.Replace(part("text/hostler-config", "a.yaml", inLan), "--b0--", "--b0\nContent-Type: text/hostler-config\nContent-Disposition: attachment; filename=\"b.yaml\"\n\n"+lan+"\n--b0--", 1)
			if said := m.boot(both); said != "" || len(m.files()) != 2 {
				t.Errorf("two parts: cloud-init said %q, and conf.d has %q", said, m.files())
			}
			m = newMachine(t, release).installHandler().installProgram()
			m.write("etc/hostler/conf.d/host.yaml", lan)
			if said := m.boot(inLan); said != "" {
				t.Errorf("a part and a file: cloud-init said %q", said)
			}
			m = newMachine(t, release).installHandler().installProgram()
			if said := m.boot(inLan); said != "" {
				t.Errorf("a part with a network that was applied: cloud-init said %q", said)
			}
			m = newMachine(t, release).installHandler().installProgram()
			said := m.boot("#hostler-config\nversion: 1\nmachines:\n  web: {type: lxd, image: debian/12, passwort: geheim}\n")
			if want := "cloud-init-user-data.yaml:4:38: machines.web.passwort:"; !strings.Contains(said, want) || strings.Contains(said, "geheim") {
				t.Errorf("cloud-init said %q, want %q without the password", said, want)
			}
		})
	}
}
