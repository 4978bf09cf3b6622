//go:build integration

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/kvm/kvmtest"
	"hostler/tests/harness"
)

const (
	guests  = 8  // of one round
	defined = 50 // domains that are looked at
)

// kvmRig is an agent on a private libvirt. All of the agent's calls go
// through a proxy that counts them, whatever process makes them.
type kvmRig struct {
	b      *testing.B
	server *kvmtest.Server
	proxy  *kvmtest.Proxy
	agent  *harness.Agent
	image  string
}

func newKVMRig(b *testing.B) *kvmRig {
	b.Helper()
	r := &kvmRig{b: b, server: kvmtest.Start(b), image: kvmtest.TinyReference(b)}
	r.proxy = kvmtest.NewProxy(b, r.server.Socket)
	r.agent = harness.NewAgent(b, b.TempDir())
	r.agent.Prefix = append(r.server.Prefix(), "/bin/sh", "-c", `mount --bind "$0" /run/libvirt/libvirt-sock && exec "$@"`, r.proxy.Socket)
	r.agent.Configure("namespace: bench\ntypes: {kvm: {accelerator: tcg}}\n")
	r.agent.Start()
	// With the first machine the host is set up and the image is there.
	r.agent.Apply("bench", r.declaration(1, false))
	r.delete()
	return r
}

func (r *kvmRig) declaration(n int, running bool) string {
	var text strings.Builder
	text.WriteString("version: 1\nmachines:\n")
	for _, name := range names("m", n) {
		fmt.Fprintf(&text, "  %s: {type: kvm, image: %q, cpus: 1, memory: 512MiB, running: %v}\n", name, r.image, running)
	}
	return text.String()
}

func (r *kvmRig) delete() {
	r.b.Helper()
	r.agent.Run("delete", "declaration/bench", "--wait")
}

// BenchmarkGuests defines and starts the same guests with hostler, with virsh
// and with virt-install, round by round on one libvirt, until libvirt calls
// the last one running. Hostler makes their disks, their seeds and its own
// record in that time; the others find the disks, and virsh the seeds and the
// definitions, that hostler made.
func BenchmarkGuests(b *testing.B) {
	r := newKVMRig(b)
	var apply, virsh, install []time.Duration
	most, each := 0, map[uint32]int{}
	for range rounds {
		file := r.agent.File("bench", r.declaration(guests, true))
		r.proxy.Calls()
		apply = append(apply, took(func() {
			r.agent.Run("apply", "--allow", "destroy", "-f", file)
			r.running(names("m", guests))
		}))
		if calls, by := r.proxy.Calls(); calls > most {
			most, each = calls, by
		}
		// Left alone, the agent would start again what is ended here.
		r.agent.Stop()
		definitions := map[string]string{}
		for _, name := range names("m", guests) {
			definitions[name] = filepath.Join(b.TempDir(), name+".xml")
			text := r.server.Virsh("dumpxml", "--inactive", "--security-info", name)
			if err := os.WriteFile(definitions[name], []byte(text), 0o600); err != nil {
				b.Fatal(err)
			}
			r.remove(name)
		}
		virsh = append(virsh, took(func() {
			for _, name := range names("m", guests) {
				r.server.Virsh("define", definitions[name])
				r.server.Virsh("start", name)
			}
			r.running(names("m", guests))
		}))
		for _, name := range names("m", guests) {
			r.remove(name)
		}
		install = append(install, took(func() {
			for i, name := range names("i", guests) {
				r.install(name, r.disk(names("m", guests)[i]))
			}
			r.running(names("i", guests))
		}))
		for i, name := range names("i", guests) {
			r.remove(name)
			r.server.Virsh("define", definitions[names("m", guests)[i]])
		}
		r.agent.Start()
		r.delete()
	}
	ratio("apply of 8 guests until running / virsh define and virsh start of the same 8", apply, virsh, 0.45)
	ratio("apply of 8 guests until running / virt-install --import of 8", apply, install, 0.5)
	bound("calls of libvirt for an apply of 8 guests until running", float64(most), 8*guests+8, "calls",
		fmt.Sprintf("the most of %d, by their numbers in libvirt's protocol: %v", rounds, each))
}

// running waits until libvirt calls all these guests running. It is asked only
// when each has a process: asking, too, costs time.
func (r *kvmRig) running(names []string) {
	r.b.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for _, name := range names {
		for {
			if _, err := os.Stat(filepath.Join(r.server.Runtime, name+".pid")); err == nil {
				break
			}
			if time.Now().After(deadline) {
				r.b.Fatalf("%s does not start\n%s", name, r.agent.Log())
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	harness.Wait(r.b, "all guests to run", time.Minute, func() error {
		got := strings.Fields(r.server.Virsh("list", "--state-running", "--name"))
		slices.Sort(got)
		if !slices.Equal(got, names) {
			return fmt.Errorf("%v run", got)
		}
		return nil
	})
}

// remove ends a guest and forgets its definition; its disk stays.
func (r *kvmRig) remove(name string) {
	r.b.Helper()
	r.server.Virsh("destroy", name)
	r.server.Virsh("undefine", name, "--nvram")
}

// disk finds the root disk that hostler made for a machine.
func (r *kvmRig) disk(machine string) string {
	r.b.Helper()
	for _, file := range r.server.Files() {
		if strings.HasPrefix(file, "hostler-"+machine+"-") && strings.HasSuffix(file, "root.qcow2") {
			return filepath.Join(r.server.PoolDir, file)
		}
	}
	r.b.Fatalf("%s has no disk among %v", machine, r.server.Files())
	return ""
}

func (r *kvmRig) install(name, disk string) {
	r.b.Helper()
	harness.Run(r.b, "virt-install", "--connect", "qemu:///system?socket="+r.server.Socket, "--quiet", "--noautoconsole",
		"--import", "--name", name, "--memory", "512", "--vcpus", "1", "--virt-type", "qemu", "--osinfo", "detect=off,require=off",
		"--graphics", "none", "--network", "network=default,model=virtio", "--disk", "path="+disk+",format=qcow2,bus=virtio")
}
