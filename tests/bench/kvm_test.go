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
	guests      = 8  // of one round
	guestRounds = 3  // take a minute
	defined     = 50 // domains that are looked at
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

// BenchmarkGuests defines and starts the same guests with hostler and with virsh,
// round by round on one libvirt, until libvirt calls the last one running.
// Hostler makes their disks, their seeds and its own record in that time; virsh
// finds those that hostler made, with the definitions.
func BenchmarkGuests(b *testing.B) {
	r := newKVMRig(b)
	var apply, virsh []time.Duration
	most, each := 0, map[uint32]int{}
	all := names("m", guests)
	for range guestRounds {
		file := r.agent.File("bench", r.declaration(guests, true))
		r.proxy.Calls()
		apply = append(apply, took(func() {
			r.agent.Run("apply", "--allow", "destroy", "-f", file)
			r.running(all)
		}))
		if calls, by := r.proxy.Calls(); calls > most {
			most, each = calls, by
		}
		// Left alone, the agent would start again what is ended here.
		r.agent.Stop()
		definitions := map[string]string{}
		for _, name := range all {
			definitions[name] = filepath.Join(b.TempDir(), name+".xml")
			text := r.server.Virsh("dumpxml", "--inactive", "--security-info", name)
			if err := os.WriteFile(definitions[name], []byte(text), 0o600); err != nil {
				b.Fatal(err)
			}
		}
		r.kill(all)
		for _, name := range all {
			r.server.Virsh("undefine", name, "--nvram")
		}
		virsh = append(virsh, took(func() {
			for _, name := range all {
				r.server.Virsh("define", definitions[name])
				r.server.Virsh("start", name)
			}
			r.running(all)
		}))
		r.kill(all)
		r.agent.Start()
		r.delete()
	}
	ratio("apply of 8 guests until running / virsh define and virsh start of the same 8", apply, virsh, 0.45)
	bound("calls of libvirt for an apply of 8 guests until running", float64(most), 8*guests+8, "calls",
		fmt.Sprintf("the most of %d, by their numbers in libvirt's protocol: %v", guestRounds, each))
}

// kill ends all guests at once, because guests that still boot would slow down a
// loop.
func (r *kvmRig) kill(guests []string) {
	r.b.Helper()
	inTurns(len(guests), guests, func(name string) { r.server.Virsh("destroy", name) })
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
