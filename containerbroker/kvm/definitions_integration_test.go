//go:build integration

package kvm_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/kvm/kvmtest"
	"hostler/internal/fault"
)

func TestDefinitions(t *testing.T) {
	r := newRig(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *rig)
	}{
		{"Z8 an interrupted image is made again", interruptedImageIsMadeAgain}, // needs an empty pool
		{"K2 a raw image is converted", rawImageIsConverted},
		{"I14 secrets stay secret", secretsStaySecret},
		{"F30 foreign domains stay", foreignDomainsStay},
		{"W12 a guest with NUMA cells grows", laidOutGrows},
		{"P28 a released guest keeps its image and is adopted whole", releasedKeepsItsImage},
		{"a disk in another pool keeps its image", imageOfAnotherPoolStays},
		{"another network leaves the first boot alone", seedKeepsTheFirstBoot},
		{"W2 a clone is foreign", cloneIsForeign},
		{"P27 files are not left in a pool that libvirt forgot", forgottenPoolKeepsInstance},
		{"Z3 a pass takes two calls", passTakesTwoCalls},
	} {
		t.Run(part.name, func(t *testing.T) {
			inner := *r
			inner.t = t
			part.run(t, &inner)
		})
	}
}

func passTakesTwoCalls(t *testing.T, r *rig) {
	t.Helper()
	d := r.broker("hostler")
	m := r.made(d, "one")
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	const many = 50
	for n := range many {
		r.addForeign(t, fmt.Sprint("theirs-", n))
	}
	if all, err := d.List(t.Context(), false); err != nil || len(all) != many+1 {
		t.Fatalf("%d instances, %v", len(all), err)
	}
	r.proxy.Calls()
	began := time.Now()
	if _, err := d.List(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	calls, each := r.proxy.Calls()
	t.Logf("%d calls in %s", calls, took)
	if calls > 2 {
		t.Errorf("a pass over %d domains took %d calls: %v", many+1, calls, each)
	}
	// A change by another tool is seen.
	r.server.Virsh("setvcpus", m.Name, "2", "--config", "--maximum")
	r.server.Virsh("dumpxml", m.Name)
	r.server.Define("define", strings.Replace(r.server.Virsh("dumpxml", m.Name, "--inactive"), "<on_crash>destroy", "<on_crash>restart", 1))
	if i := get(t, d, m.Name); i.Status != containerbroker.StatusStopped || i.CPUs == 0 {
		t.Errorf("%+v", i)
	}
}

func secretsStaySecret(t *testing.T, r *rig) {
	t.Helper()
	d := r.broker("hostler")
	m := r.machine(d, "secret")
	m.Guest.UserData = "#cloud-config\npassword: hunter2\n"
	must(t, d.Create(t.Context(), m, nil))
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	if text := r.server.Virsh("dumpxml", m.Name); strings.Contains(text, "hunter2") {
		t.Error("the definition tells the secret")
	}
	if i := get(t, d, m.Name); i.Stamp.Record != m.Stamp.Record {
		t.Errorf("the record came back as %q", i.Stamp.Record)
	}
	for _, file := range r.server.Files() {
		info, err := os.Stat(filepath.Join(r.server.PoolDir, file))
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", file, info.Mode())
		}
	}
}

func seedKeepsTheFirstBoot(t *testing.T, r *rig) {
	t.Helper()
	d := r.broker("hostler")
	m := r.machine(d, "seeded")
	m.Guest.UserData = "#!/bin/sh\necho first\n"
	m.NICs = []containerbroker.NIC{{Name: "eth0", Bridge: brokertest.Bridge(t), Static: true, Addresses: []string{"10.0.0.2/24"}}}
	must(t, d.Create(t.Context(), m, nil))
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	m.Guest.UserData, m.NICs[0].Addresses = "#!/bin/sh\necho second\n", []string{"10.0.0.3/24"}
	network := slices.DeleteFunc(d.Diff(m, get(t, d, m.Name)), func(c containerbroker.Change) bool { return c.Impact == containerbroker.ImpactRecreate })
	// A seed whose content does not arrive is read again.
	r.proxy.Add(kvmtest.ProcVolumeRead, kvmtest.Hang, kvmtest.Truncate)
	must(t, d.Update(t.Context(), m, network))
	if n := r.proxy.Count(kvmtest.ProcVolumeRead); n != 3 {
		t.Errorf("the seed was read %d times", n)
	}
	uuid := r.server.Virsh("domuuid", m.Name)
	for _, file := range r.server.Files() {
		if !strings.HasSuffix(file, ".iso") {
			continue
		}
		seed, err := os.ReadFile(filepath.Join(r.server.PoolDir, file))
		must(t, err)
		for _, part := range []string{"10.0.0.3/24", "echo first", `"instance-id": "` + strings.TrimSpace(uuid) + `"`} {
			if !strings.Contains(string(seed), part) {
				t.Errorf("%s holds no %s", file, part)
			}
		}
		return
	}
	t.Error("there is no seed")
}

func foreignDomainsStay(t *testing.T, r *rig) {
	t.Helper()
	d := r.broker("hostler")
	r.addForeign(t, "theirs")
	before := r.server.Virsh("dumpxml", "theirs")
	m := r.machine(d, "theirs")
	if err := d.Create(t.Context(), m, nil); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	if err := d.Delete(t.Context(), m.Name, m.Stamp); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	if after := r.server.Virsh("dumpxml", "theirs"); after != before {
		t.Errorf("it became %s", after)
	}
	must(t, d.Stamp(t.Context(), "theirs", nil, m.Stamp))
	must(t, d.Unstamp(t.Context(), "theirs", m.Stamp))
	if after := r.server.Virsh("dumpxml", "theirs"); !strings.Contains(after, "<theirs xmlns=\"https://example.com/\">kept</theirs>") || strings.Contains(after, "hostler.invalid") {
		t.Errorf("it became %s", after)
	}
}

// A guest whose definition lays out processors and memory in sockets and NUMA
// cells gets the declared sizes after a change. libvirt refuses a maximum that
// differs from the topology, and computes memory as the sum of the cells.
func laidOutGrows(t *testing.T, r *rig) {
	t.Helper()
	d := r.broker("hostler")
	r.server.Define("define", "<domain type='qemu'><name>laid</name><memory unit='MiB'>1024</memory><vcpu current='1'>2</vcpu><os><type>hvm</type></os>"+
		"<cpu mode='maximum'><topology sockets='1' cores='2' threads='1'/><numa><cell id='0' cpus='0-1' memory='1024' unit='MiB'/></numa></cpu></domain>")
	t.Cleanup(func() { r.server.Virsh("undefine", "laid") })
	m := containerbroker.Machine{Name: "laid", Properties: containerbroker.Properties{CPUs: 1, Memory: 1 << 30}, KeepGuest: true, Stamp: containerbroker.Stamp{Namespace: "hostler", UID: "laid", Token: "t", Record: "{}"}}
	must(t, d.Stamp(t.Context(), m.Name, nil, m.Stamp))
	if changes := d.Diff(m, get(t, d, m.Name)); len(changes) != 0 {
		t.Fatalf("declared as it is, it differs: %+v", changes)
	}
	for _, want := range []struct {
		cpus   int
		memory int64
	}{{2, 1 << 30}, {3, 3 << 30}, {1, 2 << 30}} {
		m.CPUs, m.Memory = want.cpus, want.memory
		must(t, d.Update(t.Context(), m, d.Diff(m, get(t, d, m.Name))))
		if changes := d.Diff(m, get(t, d, m.Name)); len(changes) != 0 {
			t.Errorf("after the change to %+v it differs still: %+v\n%s", want, changes, r.server.Virsh("dumpxml", m.Name))
		}
	}
}

func interruptedImageIsMadeAgain(t *testing.T, r *rig) {
	t.Helper()
	d := r.broker("hostler")
	id, err := d.EnsureImage(t.Context(), r.image, nil)
	must(t, err)
	file := filepath.Join(r.server.PoolDir, "hostler-image-hostler-"+id+".qcow2")
	whole, err := os.ReadFile(file)
	must(t, err)
	must(t, os.Rename(file, filepath.Join(r.server.PoolDir, "."+filepath.Base(file)+".hostler-tmp")))
	must(t, os.Truncate(filepath.Join(r.server.PoolDir, "."+filepath.Base(file)+".hostler-tmp"), 100))
	again, err := d.EnsureImage(t.Context(), r.image, nil)
	if err != nil || again != id {
		t.Fatalf("%s, %v", again, err)
	}
	if now, err := os.ReadFile(file); err != nil || len(now) != len(whole) {
		t.Errorf("%d bytes, %v", len(now), err)
	}
	entries, _ := os.ReadDir(r.server.PoolDir)
	if len(entries) != 1 {
		t.Errorf("the pool holds %v", entries)
	}
}

func rawImageIsConverted(t *testing.T, r *rig) {
	t.Helper()
	d := r.broker("hostler")
	raw := filepath.Join(t.TempDir(), "tiny.raw")
	host(t, "/usr/bin/qemu-img", "convert", "-O", "raw", kvmtest.Tiny(t), raw)
	data, err := os.ReadFile(raw)
	must(t, err)
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	id, err := d.EnsureImage(t.Context(), "file:"+raw+"#sha256="+digest, nil)
	if err != nil || id != digest {
		t.Fatalf("%s, %v", id, err)
	}
	file := filepath.Join(r.server.PoolDir, "hostler-image-hostler-"+id+".qcow2")
	made, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(made), "QFI\xfb") {
		t.Errorf("%v", err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s, %v", info.Mode(), err)
	}
	must(t, d.DeleteImage(t.Context(), id))
	if _, err := os.Stat(file); err == nil {
		t.Error("the image is still there")
	}
}
