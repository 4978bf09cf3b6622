//go:build integration

package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/containerbroker/lxc"
	"hostler/containerbroker/lxc/lxctest"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/run"
	"hostler/storage/idmap"
	"hostler/tests/harness"
)

// lxcRig is a driver of classic LXC with a pool of its own, on the bridge of a
// private LXD. The driver runs all programs through programs, which counts them.
type lxcRig struct {
	*lxctest.Folder
	b        *testing.B
	lxd      *rig
	ids      lxc.IDs
	d        *lxc.Driver
	programs *programs
	image    string
}

func newLXCRig(b *testing.B) *lxcRig {
	b.Helper()
	r := &lxcRig{b: b, lxd: newRig(b, lxdtest.LXD, false), programs: &programs{}}
	r.lxd.agent.Stop()
	r.Folder = lxctest.NewFolder(b, "bench", "4G")
	ids, err := idmap.Of("/etc/subuid", "/etc/subgid", "root", idmap.Map{})
	r.must(err)
	r.ids = lxc.IDs{FirstUser: ids.Users.First, FirstGroup: ids.Groups.First, Count: min(ids.Users.Count, ids.Groups.Count)}
	r.d = lxc.New(lxc.Options{
		Path: r.Path, Namespace: "bench", IDs: r.ids, Bridge: r.lxd.lxd.Bridge, Images: tiny(r.tar()), Host: r.programs, Runner: r.programs,
	})
	r.image, err = r.d.EnsureImage(b.Context(), "tiny", nil)
	r.must(err)
	return r
}

func (r *lxcRig) must(err error) {
	r.b.Helper()
	if err != nil {
		r.b.Fatal(err)
	}
}

// tar makes the image that the private LXD has too.
func (r *lxcRig) tar() string {
	r.b.Helper()
	path := filepath.Join(r.Dir, "tiny.tar")
	r.must(lxdtest.BuildTiny(path, ""))
	return path
}

// machine returns the declaration of a container like those of LXD.
func (r *lxcRig) machine(name string) containerbroker.Machine {
	return containerbroker.Machine{
		Name: name, ImageID: r.image,
		Stamp: containerbroker.Stamp{Namespace: "bench", UID: "uid-" + name, Token: "token-" + name, Record: "{}"},
	}
}

// inTurns calls f for each name, on atOnce at a time.
func inTurns(atOnce int, names []string, f func(name string)) {
	turns := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, name := range names {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			f(name)
		})
	}
	all.Wait()
}

// make makes and starts containers in turns and waits until all are ready, as
// the provisioner does.
func (r *lxcRig) make(names []string) {
	r.b.Helper()
	errs := make(chan error, 3*len(names))
	var waits sync.WaitGroup
	inTurns(8, names, func(name string) {
		m := r.machine(name)
		errs <- r.d.Create(r.b.Context(), m, nil)
		errs <- r.d.SetPower(r.b.Context(), name, containerbroker.PowerStart, 0)
		waits.Go(func() {
			_, err := r.d.WaitReady(r.b.Context(), m, nil)
			errs <- err
		})
	})
	waits.Wait()
	close(errs)
	for err := range errs {
		r.must(err)
	}
}

func (r *lxcRig) remove(names []string) {
	r.b.Helper()
	errs := make(chan error, len(names))
	inTurns(8, names, func(name string) { errs <- r.d.Delete(r.b.Context(), name, r.machine(name).Stamp) })
	close(errs)
	for err := range errs {
		r.must(err)
	}
}

// programs counts the programs that a driver runs.
type programs struct {
	run.Host
	ran atomic.Int64
}

// Run implements run.Runner.
func (p *programs) Run(ctx context.Context, c run.Command) (run.Result, error) {
	p.ran.Add(1)
	return p.Host.Run(ctx, c)
}

// Attach implements lxc.Host.
func (p *programs) Attach(ctx context.Context, a run.Attached) (int, error) {
	p.ran.Add(1)
	return p.Host.Attach(ctx, a)
}

// tiny provides a file as the only image.
type tiny string

// Ensure implements images.Provider.
func (t tiny) Ensure(_ context.Context, ref string, format images.Format, _ images.Progress) (images.Artifact, error) {
	content, err := os.ReadFile(string(t))
	if err != nil {
		return images.Artifact{}, err
	}
	sum := sha256.Sum256(content)
	return images.Artifact{Reference: ref, Digest: hex.EncodeToString(sum[:]), Format: format, Path: string(t), Size: int64(len(content))}, nil
}

// EnsureOrOwn implements images.Provider.
func (t tiny) EnsureOrOwn(ctx context.Context, ref string, format images.Format, _ images.Own, progress images.Progress) (images.Artifact, error) {
	return t.Ensure(ctx, ref, format, progress)
}

// byTools prepares lxc-create with the template "local" and returns functions
// that make and remove a container with LXC's tools. The root filesystem is that
// of the other containers.
func (r *lxcRig) byTools() (create, remove func(name string)) {
	r.b.Helper()
	path := filepath.Join(r.Dir, "tools")
	work := filepath.Join(r.Dir, "work")
	r.must(errors.Join(os.Mkdir(path, 0o711), os.MkdirAll(filepath.Join(work, "meta"), 0o711)))
	for name, text := range map[string]string{
		"config": "lxc.arch = linux64\n", "config-user": "lxc.arch = linux64\n", "excludes-user": "./dev\n", "create-message": "\n", "templates": "",
	} {
		r.must(os.WriteFile(filepath.Join(work, "meta", name), []byte(text), 0o644))
	}
	meta, tree := filepath.Join(work, "meta.tar.xz"), filepath.Join(work, "root.tar.xz")
	harness.Run(r.b, "tar", "-C", filepath.Join(work, "meta"), "-cJf", meta, ".")
	harness.Run(r.b, "tar", "-C", work, "-xf", filepath.Join(r.Dir, "tiny.tar"))
	harness.Run(r.b, "tar", "-C", filepath.Join(work, "rootfs"), "-cJf", tree, ".")
	var config bytes.Buffer
	fmt.Fprintf(&config, "lxc.idmap = u 0 %d 65536\nlxc.idmap = g 0 %d 65536\n", r.ids.FirstUser, r.ids.FirstGroup)
	fmt.Fprintf(&config, "lxc.net.0.type = veth\nlxc.net.0.link = %s\nlxc.net.0.flags = up\n", r.lxd.lxd.Bridge)
	file := filepath.Join(work, "config")
	r.must(os.WriteFile(file, config.Bytes(), 0o644))
	in := func(name string, command string, more ...string) {
		r.b.Helper()
		harness.Run(r.b, command, append([]string{"-P", path, "-n", name}, more...)...)
	}
	create = func(name string) {
		in(name, "lxc-create", "-f", file, "-t", "local", "--", "-m", meta, "-f", tree)
		in(name, "lxc-start", "-d")
	}
	remove = func(name string) {
		in(name, "lxc-stop", "-k")
		in(name, "lxc-destroy")
	}
	r.b.Cleanup(func() {
		for name := range strings.FieldsSeq(harness.Run(r.b, "lxc-ls", "-P", path, "--running")) {
			in(name, "lxc-stop", "-k")
		}
	})
	return create, remove
}
