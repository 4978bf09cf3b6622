package images

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"hostler/internal/fault"
	"hostler/internal/run"
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
		"none": {map[string]string{"sources.list": "deb http://x/ubuntu noble main\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "sources.list.d"), 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range c.files {
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

func TestBuildUsesTheMirrorAndTheProxy(t *testing.T) {
	w := newWorkshop()
	c := open(t, func(o *Options) {
		o.Runner, o.Mirrors = w, Mirrors{Debian: "http://m.test/debian", Proxy: "http://p.test:3142"}
	})
	var secret string
	w.Handle("mksquashfs", func(_ context.Context, c run.Command) (run.Result, error) {
		data, err := os.ReadFile(filepath.Join(c.Dir, "proxy.conf"))
		secret = string(data)
		return run.Result{}, errors.Join(err, os.WriteFile(c.Args[1], squash{}.bytes(dir("", reg("f", 1))), 0o600))
	})
	if _, err := c.Ensure(t.Context(), "debian/11", FormatLXD, nil); err != nil {
		t.Fatal(err)
	}
	call := w.Calls()[0]
	text := call.String()
	if sources, err := io.ReadAll(call.Stdin); err != nil || !strings.Contains(string(sources), "deb http://m.test/debian bullseye main\n") ||
		!strings.Contains(string(sources), "deb http://m.test/debian-security bullseye-security main\n") {
		t.Errorf("sources %q, %v", sources, err)
	}
	if secret != "Acquire::http::Proxy \"http://p.test:3142\";\n" || strings.Contains(text, "p.test") || strings.Contains(text, "m.test") {
		t.Errorf("the proxy is %q, and every user can read %s", secret, text)
	}
	for _, want := range []string{"--aptopt=" + call.Dir + "/proxy.conf", "--kill-child", "--architectures=amd64"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if strings.Contains(text, "systemd-resolved") {
		t.Error("bullseye has no package systemd-resolved")
	}
	if !strings.HasSuffix(call.Dir, ".hostler-tmp") || !slices.Contains(call.Env, "TMPDIR="+call.Dir+"/tmp") {
		t.Errorf("it works in %s with %q", call.Dir, call.Env)
	}
	bad := open(t, func(o *Options) { o.Runner, o.Mirrors = w, Mirrors{Debian: "http://m.test/debian x"} })
	if _, err := bad.Ensure(t.Context(), "debian/12", FormatLXD, nil); fault.KindOf(err) != fault.NeedsOperator {
		t.Errorf("got %v", err)
	}
}

func TestProgressOfABuild(t *testing.T) {
	w := newWorkshop()
	w.Handle("unshare", func(_ context.Context, c run.Command) (run.Result, error) {
		for _, line := range []string{
			"I: running apt-get update...", "Setting up nothing", "I: downloading packages with apt...", "I: extracting archives...",
			"I: installing essential packages...", "Unpacking a", "Unpacking b", "Setting up a",
			"I: installing remaining packages inside the chroot...",
		} {
			c.OnLine(line)
		}
		for range 1000 {
			c.OnLine("Unpacking x (1) ...")
		}
		c.OnLine("I: running --customize-hook in shell: x")
		c.OnLine("I: cleaning package lists and apt cache...")
		_, root := buildArgs(c)
		return run.Result{}, os.MkdirAll(root, 0o755)
	})
	c := open(t, func(o *Options) { o.Runner = w })
	var seen []int
	if _, err := c.Ensure(t.Context(), "debian/12", FormatLXD, func(_ string, percent int) {
		if percent >= 0 {
			seen = append(seen, percent)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(seen) || seen[len(seen)-1] != 100 || !slices.Contains(seen, 79) || len(seen) < 40 {
		t.Errorf("percentages %v", seen)
	}
}

// To set a locale, recent cloud-init installs the package locales. So the image
// has its locale, and tells cloud-init to set none. On recent systemd,
// /etc/default/locale is a link.
func TestLocaleOfABuild(t *testing.T) {
	for name, c := range map[string]struct {
		plan debianPlan
		link string
	}{
		"container of Ubuntu 24.04": {plan: debianPlan{codename: "noble"}},
		"disk of Debian 12":         {plan: debianPlan{codename: "bookworm", disk: true}},
		"container of Debian 11":    {plan: debianPlan{codename: "bullseye"}},
		"link":                      {plan: debianPlan{codename: "trixie"}, link: "../locale.conf"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if c.link != "" {
				if err := errors.Join(os.MkdirAll(root+"/etc/default", 0o755), os.Symlink(c.link, root+"/etc/default/locale")); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.plan.finish(root); err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(root + "/etc/default/locale"); err != nil || string(text) != "LANG=C.UTF-8\n" {
				t.Errorf("the image's locale is %q, %v", text, err)
			}
			text, err := os.ReadFile(root + "/etc/cloud/cloud.cfg.d/99-hostler.cfg")
			if err != nil {
				t.Fatal(err)
			}
			var settings map[string]any
			if err := yaml.Unmarshal(text, &settings); err != nil || settings["locale"] != false {
				t.Errorf("cloud-init's locale is %v, %v; want false", settings["locale"], err)
			}
		})
	}
}

func TestMetadataOfABuild(t *testing.T) {
	w := newWorkshop()
	c := open(t, func(o *Options) { o.Runner = w })
	a, err := c.Ensure(t.Context(), "debian/12", FormatLXD, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(a.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	contents := map[string]string{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		contents[h.Name] = string(data)
	}
	for name, want := range map[string]string{
		"metadata.yaml": "architecture: x86_64", "templates/hostname.tpl": "{{ container.name }}", "templates/hosts.tpl": "127.0.1.1",
	} {
		if !strings.Contains(contents[name], want) {
			t.Errorf("%s holds %q", name, contents[name])
		}
	}
}

type shop struct {
	names []string
	err   error
	lacks string // a package that cannot be installed
}

func (s *shop) Unavailable(_ context.Context, names []string) error {
	if slices.Contains(names, s.lacks) {
		return fault.New(fault.NeedsOperator, "no repository offers %s", s.lacks)
	}
	return nil
}

func (s *shop) Ensure(_ context.Context, names []string, _ func(string)) error {
	s.names = append(s.names, names...)
	return s.err
}

func TestPackagesForBuildingComeFirst(t *testing.T) {
	w, s := newWorkshop(), &shop{err: fault.New(fault.Transient, "dpkg is locked")}
	c := open(t, func(o *Options) { o.Runner, o.Packages = w, s })
	if _, err := c.Ensure(t.Context(), "debian/12", FormatLXD, nil); err == nil || !strings.Contains(err.Error(), "dpkg is locked") || w.builds.Load() != 0 {
		t.Errorf("got %v after %d builds", err, w.builds.Load())
	}
	if !slices.Equal(s.names, []string{"mmdebstrap", "squashfs-tools", "debian-archive-keyring"}) {
		t.Errorf("installed %q", s.names)
	}
}

// K2: images for KVM guests are built as disks on request, with other packages
// than LXD's images.
func TestDisksAreBuiltOnRequest(t *testing.T) {
	w, s := newWorkshop(), &shop{err: fault.New(fault.Transient, "dpkg is locked")}
	c := open(t, func(o *Options) { o.Runner, o.Packages = w, s })
	if _, err := c.Build(t.Context(), "debian/12", FormatDisk, nil); err == nil || !strings.Contains(err.Error(), "dpkg is locked") {
		t.Errorf("got %v", err)
	}
	if !slices.Contains(s.names, "qemu-utils") || !slices.Contains(s.names, "grub-pc-bin") {
		t.Errorf("installed %q", s.names)
	}
	if _, err := c.Build(t.Context(), "debian/12", "tape", nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v", err)
	}
}

func TestBusyboxMustBeStatic(t *testing.T) {
	c := open(t, func(o *Options) { o.Runner, o.Busybox = newWorkshop(), "/bin/bash" })
	if _, err := c.Ensure(t.Context(), "busybox/1", FormatLXD, nil); fault.KindOf(err) != fault.NeedsOperator || !strings.Contains(err.Error(), "busybox-static") {
		t.Errorf("got %v", err)
	}
	none := open(t, func(o *Options) { o.Runner, o.Busybox = newWorkshop(), "/nonexistent" })
	if _, err := none.Ensure(t.Context(), "busybox/1", FormatLXD, nil); fault.KindOf(err) != fault.NeedsOperator {
		t.Errorf("got %v", err)
	}
}
