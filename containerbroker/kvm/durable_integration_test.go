//go:build integration

package kvm_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hostler/containerbroker"
	"hostler/containerbroker/kvm"
	"hostler/storage/storagetest"
)

// TestSeedSurvivesAPowerCut creates the instance in a process of another user. created
// and socket are the variables with that process's machine and libvirt. pool is the
// storage pool.
const (
	created = "HOSTLER_TEST_MACHINE"
	socket  = "HOSTLER_TEST_SOCKET"
	pool    = "disk"
)

// The seed of an instance whose creation has succeeded is whole after a power cut,
// also if the driver's user is not root, as in a provisioner's unit. The pool is on
// a filesystem in a file. A copy of that file has what the filesystem has written so
// far, as a disk has after a power cut.
func TestSeedSurvivesAPowerCut(t *testing.T) {
	if text := os.Getenv(created); text != "" {
		var m containerbroker.Machine
		must(t, json.Unmarshal([]byte(text), &m))
		must(t, kvm.New(kvm.Options{Socket: os.Getenv(socket), Namespace: "hostler", Pool: pool}).Create(t.Context(), m, nil))
		return
	}
	dir := storagetest.Host(t, "ext4", 256*storagetest.MiB)
	for parent := filepath.Dir(dir); parent != os.TempDir(); parent = filepath.Dir(parent) {
		must(t, os.Chmod(parent, 0o711))
	}
	r := newRig(t)
	r.server.Virsh("pool-define-as", pool, "dir", "--target", dir)
	r.server.Virsh("pool-start", pool)
	o := r.options("hostler")
	o.Pool = pool
	d := kvm.New(o)
	m := r.machine(d, "guest")
	m.Guest.UserData = "#cloud-config\n{}\n"
	host(t, "/bin/sync", "-f", dir)
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	text, err := json.Marshal(m)
	must(t, err)
	user := exec.Command("/proc/self/exe", "-test.run=^TestSeedSurvivesAPowerCut$")
	user.Env = append(os.Environ(), created+"="+string(text), socket+"="+r.server.Socket)
	user.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := user.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	cut, after := filepath.Join(t.TempDir(), "image"), t.TempDir()
	host(t, "/bin/cp", "--sparse=always", filepath.Join(filepath.Dir(dir), "image"), cut)
	host(t, "/bin/mount", "-o", "loop", cut, after)
	t.Cleanup(func() { host(t, "/bin/umount", after) })
	seeds, err := filepath.Glob(filepath.Join(after, "hostler-guest-*.seed-*"))
	must(t, err)
	if len(seeds) != 1 {
		t.Fatalf("the seeds are %q", seeds)
	}
	seed, err := os.ReadFile(seeds[0])
	must(t, err)
	sum := sha256.Sum256(seed)
	if text := hex.EncodeToString(sum[:]); !strings.HasSuffix(seeds[0], "seed-"+text[:12]+".iso") {
		t.Errorf("%s of %d bytes has the digest %s", seeds[0], len(seed), text)
	}
	if info, err := os.Stat(seeds[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
