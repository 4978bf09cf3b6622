//go:build integration

package bench

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker/images"
	"hostler/containerbroker/kvm"
	"hostler/internal/run"
	"hostler/tests/harness"
)

// keepDomains has an agent of its own define domains.
func keepDomains(b *testing.B) *kvmRig {
	r := newKVMRig(b)
	r.agent.Apply("bench", r.declaration(defined, false))
	return r
}

func (r *kvmRig) begin() { r.proxy.Calls() }

func (r *kvmRig) end(minutes float64) {
	calls, each := r.proxy.Calls()
	bound(fmt.Sprintf("calls of libvirt per idle minute with %d defined domains", defined), float64(calls)/minutes, 2, "calls",
		fmt.Sprintf("in %v minutes, by their numbers in libvirt's protocol: %v", minutes, each))
}

// stop ends the agent with its domains and measures a worker alone.
func (r *kvmRig) stop() {
	r.delete()
	r.agent.Stop()
	r.steady()
}

// steady has a worker look at domains that are as declared, in every pass at
// all that it ever looks at.
func (r *kvmRig) steady() {
	b := r.b
	ctx, stop := context.WithCancel(b.Context())
	store, _, err := state.Open(ctx, state.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	cache, err := images.Open(images.Options{Dir: b.TempDir(), Sources: []string{"local"}, Runner: run.Host{}})
	if err != nil {
		b.Fatal(err)
	}
	driver := kvm.New(kvm.Options{
		Socket: r.proxy.Socket, Namespace: "steady", Images: cache, Runner: run.Host{}, RuntimeDir: r.server.Runtime,
	})
	off := false
	var writes []state.Write
	for _, name := range names("s", defined) {
		machine := spec.Machine{Type: spec.KVM, Image: r.image, CPUs: 1, Memory: 512 * spec.MiB, Running: &off}
		writes = append(writes, state.Write{
			ID: state.ID{Kind: spec.KindMachine, Name: name}, Life: state.Alive, Spec: spec.Encode(spec.MachineRecord{Header: spec.Header{Declaration: "bench"}, Machine: machine}),
		})
	}
	if _, err := store.Write(ctx, state.Atomic, writes...); err != nil {
		b.Fatal(err)
	}
	passes := &passes{calls: r.proxy.Calls}
	tokens := 0
	common := reconcile.Common{Store: store, Metrics: passes, Now: time.Now, Logger: slog.New(slog.DiscardHandler), Resync: 250 * time.Millisecond}
	w := provisioner.New(common, provisioner.Options{
		Type: spec.KVM, Broker: driver, Differ: driver, Images: driver,
		NewToken: func() string { tokens++; return fmt.Sprint("token", tokens) },
		Defaults: provisioner.Config{
			Namespace: "steady", Harvest: provisioner.HarvestNone, Concurrency: 1, StartRetries: 1, RetryDelay: time.Second, TransientRetryInterval: time.Second,
		},
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	const looked = 20
	harness.Wait(b, "passes in which nothing is to be done", 5*time.Minute, func() error {
		// The first one reads what the last operation changed.
		if n := passes.quiet(); n < 1+looked {
			return fmt.Errorf("%d of them after %d domains", n, len(r.server.Names()))
		}
		return nil
	})
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	if n := len(r.server.Names()); n != defined {
		b.Fatalf("%d domains", n)
	}
	took, calls := passes.last(looked)
	bound(fmt.Sprintf("steady pass over %d defined domains", defined), milliseconds(median(took)), 50, "ms", fmt.Sprintf("median of %d: %s", looked, seconds(took)))
	bound(fmt.Sprintf("calls of libvirt for a steady pass over %d defined domains, the most of %d", defined, looked), float64(percentile(calls, 100)), 2, "calls", fmt.Sprint(calls))
	for _, name := range r.server.Names() {
		r.server.Virsh("undefine", name, "--nvram")
	}
}

// passes notes the passes of a worker since its last operation.
type passes struct {
	calls func() (int, map[uint32]int)

	mu    sync.Mutex
	took  []time.Duration
	asked []int
}

// Pass implements provisioner.Metrics.
func (p *passes) Pass(took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, _ := p.calls()
	if err == nil {
		p.took, p.asked = append(p.took, took), append(p.asked, n)
	}
}

// Operation implements provisioner.Metrics: what was before it was not steady,
// and its calls are not those of the pass after it.
func (p *passes) Operation(string, time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls()
	p.took, p.asked = nil, nil
}

func (p *passes) quiet() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.took)
}

func (p *passes) last(n int) ([]time.Duration, []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.took[len(p.took)-n:], p.asked[len(p.asked)-n:]
}
