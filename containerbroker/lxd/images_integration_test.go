//go:build integration

package lxd_test

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/containerbroker/lxd"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/fault"
)

// source provides one artifact for each reference.
type source struct {
	artifacts map[string]images.Artifact
	calls     atomic.Int32
}

func (s *source) Ensure(_ context.Context, ref string, format images.Format, progress images.Progress) (images.Artifact, error) {
	s.calls.Add(1)
	progress("fetching "+ref, 50)
	a, ok := s.artifacts[ref]
	if !ok || format != images.FormatLXD {
		return a, fault.New(fault.NotFound, "no source has %s", ref)
	}
	return a, nil
}

func digest(t *testing.T, paths ...string) (string, int64) {
	t.Helper()
	hash, size := sha256.New(), int64(0)
	for _, path := range paths {
		file, err := os.Open(path)
		must(t, err)
		n, err := io.Copy(hash, file)
		must(t, err)
		size += n
		_ = file.Close()
	}
	return hex.EncodeToString(hash.Sum(nil)), size
}

func (s *source) EnsureOrOwn(ctx context.Context, ref string, format images.Format, own images.Own, progress images.Progress) (images.Artifact, error) {
	a, err := s.Ensure(ctx, ref, format, progress)
	if fault.Is(err, fault.NotFound) {
		id, err := own(ctx)
		return images.Artifact{Own: id}, err
	}
	return a, err
}

// split makes a metadata tarball and a squashfs from a unified image.
func split(t *testing.T, unified, dir string) (metadata, rootfs string) {
	t.Helper()
	must(t, exec.Command("tar", "-C", dir, "-xf", unified).Run())
	rootfs = filepath.Join(dir, "rootfs.squashfs")
	must(t, exec.Command("mksquashfs", filepath.Join(dir, "rootfs"), rootfs, "-quiet", "-no-progress", "-noappend").Run())
	metadata = filepath.Join(dir, "metadata.tar")
	file, err := os.Create(metadata)
	must(t, err)
	content, err := os.ReadFile(filepath.Join(dir, "metadata.yaml"))
	must(t, err)
	w := tar.NewWriter(file)
	must(t, w.WriteHeader(&tar.Header{Name: "metadata.yaml", Mode: 0o644, Size: int64(len(content))}))
	_, err = w.Write(content)
	must(t, err)
	must(t, w.Close())
	must(t, file.Close())
	return metadata, rootfs
}

// L2, L3, Z9: many callers share one fetch and one upload; an existing image is
// not sent again; only hostler's unused images can be deleted.
func TestImages(t *testing.T) {
	t.Parallel()
	server := lxdtest.Start(t)
	proxy := lxdtest.NewProxy(t, server.Socket)
	dir := t.TempDir()
	unified := filepath.Join(dir, "unified.tar")
	must(t, lxdtest.BuildTiny(unified, lxdtest.TinyInit+"# another\n"))
	metadata, rootfs := split(t, unified, dir)
	src := &source{artifacts: map[string]images.Artifact{}}
	sum, size := digest(t, unified)
	src.artifacts["tiny/one"] = images.Artifact{Digest: sum, Path: unified, Size: size}
	sum, size = digest(t, metadata, rootfs)
	src.artifacts["tiny/split"] = images.Artifact{Digest: sum, Path: metadata, Rootfs: rootfs, Size: size}
	sum, size = digest(t, filepath.Join(server.Dir, "tiny.tar"))
	src.artifacts["tiny/known"] = images.Artifact{Digest: sum, Path: filepath.Join(server.Dir, "tiny.tar"), Size: size}
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: proxy.Socket, Namespace: "hostler", Images: src})

	for _, ref := range []string{"tiny/one", "tiny/split"} {
		t.Run(ref, func(t *testing.T) {
			src.calls.Store(0)
			proxy.Forget()
			var whole atomic.Int32
			var wait sync.WaitGroup
			for range 8 {
				wait.Go(func() {
					id, err := d.EnsureImage(t.Context(), ref, func(s containerbroker.Report) {
						if s.Phase == "image" && s.Percent == 100 {
							whole.Add(1)
						}
					})
					if err != nil || id != src.artifacts[ref].Digest {
						t.Errorf("%q, %v", id, err)
					}
				})
			}
			wait.Wait()
			if n := proxy.Count(http.MethodPost, "/1.0/images"); n != 1 {
				t.Errorf("%d uploads", n)
			}
			if whole.Load() == 0 {
				t.Error("nobody was told of the progress")
			}
			m := machine("user", src.artifacts[ref].Digest, "token")
			must(t, d.Create(t.Context(), m, nil))
			must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
			_, err := d.WaitReady(t.Context(), m, nil)
			must(t, err)
			all, err := d.ListImages(t.Context())
			must(t, err)
			at := slices.IndexFunc(all, func(i containerbroker.HypervisorImage) bool { return i.ID == m.ImageID })
			if at < 0 || !all[at].Ours || all[at].Reference != ref || !slices.Equal(all[at].UsedBy, []string{"user"}) {
				t.Errorf("images: %+v", all)
			}
			if err := d.DeleteImage(t.Context(), m.ImageID); !fault.Is(err, fault.Conflict) {
				t.Errorf("deleting an image in use: %v", err)
			}
			other := lxd.New(lxd.Options{Dialect: dialect(), Socket: proxy.Socket, Namespace: "other"})
			must(t, d.Delete(t.Context(), m.Name, m.Stamp))
			if err := other.DeleteImage(t.Context(), m.ImageID); !fault.Is(err, fault.Conflict) {
				t.Errorf("deleting another agent's image: %v", err)
			}
			for range 2 {
				must(t, d.DeleteImage(t.Context(), m.ImageID))
			}
		})
	}
	t.Run("known to LXD", func(t *testing.T) {
		proxy.Forget()
		own := dialect().Type + ":"
		for ref, calls := range map[string]int32{"tiny/known": 1, own + "tiny": 0, "tiny": 1, own + server.TinyFingerprint: 0} {
			src.calls.Store(0)
			if id, err := d.EnsureImage(t.Context(), ref, nil); err != nil || id != server.TinyFingerprint || src.calls.Load() != calls {
				t.Errorf("%s: %q, %v, %d calls of the source", ref, id, err, src.calls.Load())
			}
		}
		if n := proxy.Mutations(); n != 0 {
			t.Errorf("%d changes", n)
		}
		if err := d.DeleteImage(t.Context(), server.TinyFingerprint); !fault.Is(err, fault.Conflict) {
			t.Errorf("deleting a foreign image: %v", err)
		}
	})
	t.Run("lost reply", func(t *testing.T) {
		proxy.Forget()
		proxy.Add(lxdtest.Rule{Method: http.MethodPost, Path: "/1.0/images", Fault: lxdtest.LoseReply})
		if _, err := d.EnsureImage(t.Context(), "tiny/one", nil); err != nil && fault.KindOf(err) != fault.Transient {
			t.Error(err)
		}
		if n := proxy.Count(http.MethodPost, "/1.0/images"); n != 1 {
			t.Errorf("%d uploads", n)
		}
	})
	t.Run("wrong digest", func(t *testing.T) {
		a := src.artifacts["tiny/split"]
		a.Digest = server.TinyFingerprint[:60] + "0000"
		src.artifacts["tiny/wrong"] = a
		if _, err := d.EnsureImage(t.Context(), "tiny/wrong", nil); err == nil {
			t.Error("an image with another fingerprint was accepted")
		}
	})
	_, err := d.EnsureImage(t.Context(), "tiny/none", nil)
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown image: %v", err)
	}
}
