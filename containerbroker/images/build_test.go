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
