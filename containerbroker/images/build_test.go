package images_test

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

	"hostler/containerbroker/images"
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
			cache := open(t, func(o *images.Options) { o.Runner, o.AptDir, o.Mirrors = w, dir, images.Mirrors{} })
			_, err := cache.Ensure(t.Context(), "debian/12", images.FormatLXD, nil)
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

func TestBuildUsesTheMirrorAndTheProxy(t *testing.T) {
	w := newWorkshop()
	c := open(t, func(o *images.Options) {
		o.Runner, o.Mirrors = w, images.Mirrors{Debian: "http://m.test/debian", Proxy: "http://p.test:3142"}
	})
	var secret string
	w.Handle("mksquashfs", func(_ context.Context, c run.Command) (run.Result, error) {
		data, err := os.ReadFile(filepath.Join(c.Dir, "proxy.conf"))
		secret = string(data)
		return run.Result{}, errors.Join(err, os.WriteFile(c.Args[1], squash{}.bytes(dir("", reg("f", 1))), 0o600))
	})
	if _, err := c.Ensure(t.Context(), "debian/11", images.FormatLXD, nil); err != nil {
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
	bad := open(t, func(o *images.Options) { o.Runner, o.Mirrors = w, images.Mirrors{Debian: "http://m.test/debian x"} })
	if _, err := bad.Ensure(t.Context(), "debian/12", images.FormatLXD, nil); fault.KindOf(err) != fault.NeedsOperator {
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
	c := open(t, func(o *images.Options) { o.Runner = w })
	var seen []int
	if _, err := c.Ensure(t.Context(), "debian/12", images.FormatLXD, func(_ string, percent int) {
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

func TestMetadataOfABuild(t *testing.T) {
	w := newWorkshop()
	c := open(t, func(o *images.Options) { o.Runner = w })
	a, err := c.Ensure(t.Context(), "debian/12", images.FormatLXD, nil)
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
}

func (s *shop) Ensure(_ context.Context, names []string, _ func(string)) error {
	s.names = append(s.names, names...)
	return s.err
}

func TestPackagesForBuildingComeFirst(t *testing.T) {
	w, s := newWorkshop(), &shop{err: fault.New(fault.Transient, "dpkg is locked")}
	c := open(t, func(o *images.Options) { o.Runner, o.Packages = w, s })
	if _, err := c.Ensure(t.Context(), "debian/12", images.FormatLXD, nil); err == nil || !strings.Contains(err.Error(), "dpkg is locked") || w.builds.Load() != 0 {
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
	c := open(t, func(o *images.Options) { o.Runner, o.Packages = w, s })
	if _, err := c.Build(t.Context(), "debian/12", images.FormatDisk, nil); err == nil || !strings.Contains(err.Error(), "dpkg is locked") {
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
	c := open(t, func(o *images.Options) { o.Runner, o.Busybox = newWorkshop(), "/bin/bash" })
	if _, err := c.Ensure(t.Context(), "busybox/1", images.FormatLXD, nil); fault.KindOf(err) != fault.NeedsOperator || !strings.Contains(err.Error(), "busybox-static") {
		t.Errorf("got %v", err)
	}
	none := open(t, func(o *images.Options) { o.Runner, o.Busybox = newWorkshop(), "/nonexistent" })
	if _, err := none.Ensure(t.Context(), "busybox/1", images.FormatLXD, nil); fault.KindOf(err) != fault.NeedsOperator {
		t.Errorf("got %v", err)
	}
}
