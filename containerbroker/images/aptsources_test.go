package images

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/internal/fault"
)

func TestAptSources(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []string // suite lines of debian/12; nil: an error
	}{
		"deb822": {
			map[string]string{"sources.list.d/debian.sources": "Types: deb\n# a comment\nURIs: http://a/debian\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n" +
				"Types: deb\nURIs: http://a/debian-security\nSuites: bookworm-security\nComponents: main contrib\n"},
			[]string{"deb http://a/debian bookworm main", "deb http://a/debian bookworm-updates main", "deb http://a/debian-security bookworm-security main"},
		},
		"one line": {
			map[string]string{"sources.list": "# deb http://no/debian bookworm main\ndeb-src http://no/debian bookworm main\n" +
				"deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://b/debian\ttrixie main contrib # x\ndeb http://b/sec trixie-security main\n"},
			[]string{"deb http://b/debian bookworm main", "deb http://b/debian bookworm-updates main", "deb http://b/sec bookworm-security main"},
		},
		"others are left alone": {
			map[string]string{
				"sources.list.d/a-docker.list":   "deb [signed-by=/etc/apt/keyrings/docker.gpg] https://docker.test/debian bookworm stable\n",
				"sources.list.d/b-vendor.list":   "deb [signed-by=/etc/apt/keyrings/vendor.gpg] https://vendor.test/debian bookworm main\n",
				"sources.list.d/c-pg.list":       "deb https://pg.test/debian bookworm-pgdg main\n",
				"sources.list.d/d.list":          "deb cdrom:[Debian]/ bookworm main\n",
				"sources.list.d/e.list.save":     "deb http://no/debian bookworm main\n",
				"sources.list.d/f-off.sources":   "Types: deb\nURIs: http://off/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n",
				"sources.list.d/g-multi.sources": "Types: deb deb-src\nURIs:\n cdrom:x\n https://good.test/debian\nSuites: stable\nComponents:\n main\n",
			},
			[]string{"deb https://good.test/debian bookworm main", "deb https://good.test/debian bookworm-updates main"},
		},
		"mirror lists": {
			map[string]string{
				"sources.list.d/debian.sources": "Types: deb deb-src\nURIs: mirror+file://DIR/mirrors/debian.list\nSuites: bookworm bookworm-updates\nComponents: main\n\n" +
					"Types: deb deb-src\nURIs: mirror+file:DIR/mirrors/debian-security.list\nSuites: bookworm-security\nComponents: main\n",
				"mirrors/debian.list":          "# http://no/debian\n\ncopy:/srv/debian\n  https://a/debian\tpriority:1\tarch:amd64\nhttps://b/debian\n",
				"mirrors/debian-security.list": "https://a/debian-security\n",
			},
			[]string{"deb https://a/debian bookworm main", "deb https://a/debian bookworm-updates main", "deb https://a/debian-security bookworm-security main"},
		},
		"none": {map[string]string{"sources.list": "deb http://x/ubuntu noble main\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, sub := range []string{"sources.list.d", "mirrors"} {
				if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for file, text := range c.files {
				text = strings.ReplaceAll(text, "DIR", dir)
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			w := newWorkshop()
			cache := open(t, func(o *Options) { o.Runner, o.AptDir, o.Mirrors = w, dir, Mirrors{} })
			_, err := cache.Ensure(t.Context(), "debian/12", FormatLXD, nil)
			if c.want == nil {
				if fault.KindOf(err) != fault.NeedsOperator || !strings.Contains(err.Error(), "apt.mirror") {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			call := w.Calls()[0]
			got, err := io.ReadAll(call.Stdin)
			if err != nil || string(got) != strings.Join(c.want, "\n")+"\n" || call.Args[len(call.Args)-1] != "-" {
				t.Errorf("got %q for %q, %v", got, call.Args, err)
			}
		})
	}
}

// A mirror list that cannot be used is named, unless hostler's configuration has
// a mirror.
func TestUnusableMirrorList(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"missing": {"", "cannot read apt's list of mirrors: open LIST: no such file or directory; mend it, or set apt.mirror in hostler's configuration"},
		"empty":   {"# none\nftp://a/debian\n", "LIST has no http or https address of a mirror; add one, or set apt.mirror in hostler's configuration"},
	} {
		dir := t.TempDir()
		list := filepath.Join(dir, "debian.list")
		if err := os.WriteFile(filepath.Join(dir, "sources.list"), []byte("deb mirror+file:"+list+" bookworm main\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if c.text != "" {
			if err := os.WriteFile(list, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		_, err := debianArchive.archives(dir, Mirrors{})
		if want := strings.ReplaceAll(c.want, "LIST", list); fault.KindOf(err) != fault.NeedsOperator || err.Error() != want {
			t.Errorf("%s: got %v\nwant %s", name, err, want)
		}
		if got, err := debianArchive.archives(dir, Mirrors{Debian: "http://m/debian"}); err != nil || got.main != "http://m/debian" {
			t.Errorf("%s: with a configured mirror got %+v, %v", name, got, err)
		}
	}
}

// The sources of Ubuntu images, and of Debian images on a host of Ubuntu, name
// the keys, unless the host itself trusts them.
func TestSourcesOfOtherDistributions(t *testing.T) {
	const host = "deb http://u/ubuntu noble main universe\ndeb http://s/ubuntu noble-security main\n"
	for name, c := range map[string]struct {
		image, sources string
		mirrors        Mirrors
		want           string
	}{
		"Ubuntu on Debian": {
			"ubuntu/26.04", "deb http://d/debian bookworm main\n",
			Mirrors{Ubuntu: "http://m/ubuntu"},
			"deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] http://m/ubuntu resolute main universe\n" +
				"deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] http://m/ubuntu resolute-updates main universe\n" +
				"deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] http://m/ubuntu resolute-security main universe\n",
		},
		"Ubuntu on Ubuntu": {
			"ubuntu/24.04", host,
			Mirrors{},
			"deb http://u/ubuntu noble main universe\ndeb http://u/ubuntu noble-updates main universe\ndeb http://s/ubuntu noble-security main universe\n",
		},
		"Ubuntu on Ubuntu without security updates": {
			"ubuntu/24.04", "deb http://u/ubuntu noble main universe\n",
			Mirrors{},
			"deb http://u/ubuntu noble main universe\ndeb http://u/ubuntu noble-updates main universe\ndeb http://u/ubuntu noble-security main universe\n",
		},
		"Debian on a host without sources": {
			"debian/13", "",
			Mirrors{Debian: "http://m/private"},
			"deb http://m/private trixie main\ndeb http://m/private trixie-updates main\n",
		},
		"Debian on Ubuntu": {
			"debian/testing", host,
			Mirrors{Debian: "http://m/debian"},
			"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://m/debian testing main\n" +
				"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://m/debian testing-updates main\n" +
				"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://m/debian-security testing-security main\n",
		},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "sources.list"), []byte(c.sources), 0o644); err != nil {
			t.Fatal(err)
		}
		w := newWorkshop()
		cache := open(t, func(o *Options) { o.Runner, o.AptDir, o.Mirrors = w, dir, c.mirrors })
		if _, err := cache.Ensure(t.Context(), c.image, FormatLXD, nil); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(w.Calls()[0].Stdin); err != nil || string(got) != c.want {
			t.Errorf("%s: got\n%swant\n%s%v", name, got, c.want, err)
		}
	}
	none := open(t, func(o *Options) { o.Runner, o.AptDir, o.Mirrors = newWorkshop(), t.TempDir(), Mirrors{} })
	if _, err := none.Ensure(t.Context(), "ubuntu/24.04", FormatLXD, nil); fault.KindOf(err) != fault.NeedsOperator || !strings.Contains(err.Error(), "no Ubuntu mirror; set apt.ubuntu-mirror") {
		t.Errorf("got %v", err)
	}
}
