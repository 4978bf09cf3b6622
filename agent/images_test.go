package agent

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/images"
	"hostler/internal/fault"
)

// Declarations and image sources accept the same image names.
func TestImageGrammarsAgree(t *testing.T) {
	digest := "#sha256=" + strings.Repeat("0a", 32)
	for ref, good := range map[string]bool{
		"debian/12": true, "debian/12/cloud": true, "busybox/1": true, "a.b-c/1.2-3/x.y": true,
		"debian": false, "debian/": false, "debian//cloud": false, "debian/12/": false, "debian/12/a/b": false, "Debian/12": false, "debian/12/Cloud": false, "/12": false,
		"lxd:tiny": true, "lxd:My/alias:1": true, "lxd:": false, "lxd:-x": false,
		"simplestreams:images/debian/12": true, "simplestreams:images/": false, "simplestreams:images": false, "simplestreams:/debian": false,
		"file:/a/b.tar" + digest: true, "file:/a/b.tar": false, "file:a.tar" + digest: false, "file:/a/../b" + digest: false, "file:/" + digest: false,
		"https://h.example/a" + digest: true, "https://h.example/" + digest: false, "https://u@h.example/a" + digest: false, "http://h.example/a" + digest: false,
	} {
		yaml := fmt.Sprintf("version: 1\nmachines: {a: {type: lxd, image: %q}}\n", ref)
		_, declared := spec.Parse("x.yaml", []byte(yaml))
		_, read := images.ParseRef(ref)
		if (declared == nil) != good || (read == nil) != good {
			t.Errorf("%s: a declaration says %v, the sources say %v", ref, declared, read)
		}
	}
}

// A hypervisor that does not answer hides only its own images, and prevents
// only the deletion of images that its machines may use (C3).
func TestImagesWhileAHypervisorIsDown(t *testing.T) {
	h, lxd, kvm, _ := twoTypes(t)
	cache, err := images.Open(images.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	h.images = cache
	lxd.AddImage("debian/12", true)
	lxd.AddImage("debian/13", true)
	if _, err := h.store.Write(t.Context(), state.Atomic, state.Write{
		ID: state.ID{Kind: spec.KindMachine, Name: "vm"}, Life: state.Alive,
		Spec: spec.Encode(spec.MachineRecord{Header: spec.Header{Declaration: "site"}, Machine: spec.Machine{Type: spec.KVM, Image: "debian/13"}}),
	}); err != nil {
		t.Fatal(err)
	}
	kvm.Fail(brokertest.ListImages, "", -1, fault.New(fault.Transient, "cannot reach libvirt"))
	s := h.imageService()
	rows, notices, err := s.List(t.Context())
	if err != nil || len(rows) != 2 || len(notices) != 1 || !strings.Contains(notices[0], "kvm") || !strings.Contains(notices[0], "cannot reach libvirt") {
		t.Fatalf("%+v, %q, %v", rows, notices, err)
	}
	for reference, want := range map[string]fault.Kind{"debian/12": "", "debian/13": fault.Transient, "debian/14": fault.Transient} {
		err := s.Delete(t.Context(), reference)
		if (err == nil) != (want == "") || err != nil && (fault.KindOf(err) != want || !strings.Contains(err.Error(), "cannot reach libvirt")) {
			t.Errorf("%s: %v", reference, err)
		}
	}
	kvm.Heal()
	rows, notices, err = s.List(t.Context())
	if err != nil || len(rows) != 1 || rows[0].Reference != "debian/13" || len(notices) != 0 {
		t.Errorf("%+v, %q, %v", rows, notices, err)
	}
	if err := s.Delete(t.Context(), "debian/14"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// K2: an image is built in the format of its container type.
func TestImagesAreBuiltForAType(t *testing.T) {
	cache, err := images.Open(images.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s := (&host{images: cache}).imageService()
	for of, says := range map[spec.ContainerType]string{spec.LXD: "cannot run programs here", spec.KVM: "makes no disk of busybox/1"} {
		if _, err := s.Build(t.Context(), of, "busybox/1", func(client.Progress) {}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("for %s: %v", of, err)
		}
	}
}

// An error about an image's deletion names the image as the user did.
func TestImageIsNamedAsTyped(t *testing.T) {
	h, lxd, _, _ := twoTypes(t)
	cache, err := images.Open(images.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	h.images = cache
	lxd.AddImage("debian/12", true)
	s := h.imageService()
	rows, _, err := s.List(t.Context())
	if err != nil || len(rows) != 1 {
		t.Fatalf("%+v, %v", rows, err)
	}
	lxd.Fail(brokertest.DeleteImage, "", -1, fault.New(fault.Conflict, "cannot delete image %s: it is used by web", rows[0].Digest))
	if err := s.Delete(t.Context(), "debian/12"); !fault.Is(err, fault.Conflict) || err.Error() != "cannot delete image debian/12: it is used by web" {
		t.Error(err)
	}
}

// The whole image configuration reaches the image cache.
func TestImageConfigurationIsUsed(t *testing.T) {
	config, _, err := spec.ParseConfig("hostler.yaml", []byte(
		"images: {sources: [local, 'simplestreams:x'], servers: {x: 'https://x.example/'}, refresh: 24h}\napt: {mirror: 'http://m.example/debian', proxy: 'http://p.example:3142'}\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := (&host{logger: slog.New(slog.DiscardHandler)}).imageOptions(config)
	if o.Refresh != 24*time.Hour || len(o.Sources) != 2 || o.Servers["x"] == "" || o.Mirrors.Debian != "http://m.example/debian" || o.Mirrors.Proxy != "http://p.example:3142" {
		t.Errorf("%+v", o)
	}
	if o.Scan != nil {
		t.Error("a program that is no hostlerd would start itself to read images")
	}
	if (&host{logger: slog.New(slog.DiscardHandler), program: "/usr/bin/hostlerd"}).imageOptions(config).Scan == nil {
		t.Error("hostlerd reads images as root, in its own process")
	}
}
