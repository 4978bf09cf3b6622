//go:build integration

package bench

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// systemds is the number of Debian containers of BenchmarkSystemd. FLEET makes
// it larger, up to mostSystemds.
const systemds, mostSystemds = 8, 100

// BenchmarkSystemd makes Debian containers with systemd and cloud-init, and
// starts a container with a static address.
func BenchmarkSystemd(b *testing.B) {
	r := &rig{b: b, lxd: lxdtest.Start(b)}
	r.dir = r.lxd.Dir
	r.agent = harness.NewAgent(b, r.dir)
	r.agent.Configure("namespace: bench\n")
	keep := r.agent.KeepImages()
	r.agent.Start()
	b.Cleanup(func() { // the network is the host's
		_, _ = r.agent.Try("delete", "declaration/bench", "--wait", "--timeout", "2m")
	})
	b.Run("Static", func(b *testing.B) { r.static(keep) })
	b.Run("Fleet", func(b *testing.B) { r.systemds(min(sizeOf(b, systemds), mostSystemds)) })
}

// static starts the container again and again. The first start is also its
// first boot.
func (r *rig) static(keep func()) {
	const text = `version: 1
networks: {lan: {bridge: brhbench, addresses: [198.19.77.1/24]}}
machines:
  web: {type: lxd, image: debian/12, running: %t, networks: {eth0: {network: lan, address: 198.19.77.10/24}}}
`
	declare := func(running bool) {
		r.b.Helper()
		r.agent.Run("apply", "--allow", "destroy", "-f", r.agent.File("bench", fmt.Sprintf(text, running)), "--wait", "--timeout", "10m")
	}
	declare(false)
	keep()
	var all []time.Duration
	for range rounds {
		all = append(all, took(func() { declare(true) }))
		declare(false)
	}
	bound("start of a Debian 12 container with a static address until ready", median(all).Seconds(), 4, "s",
		"the command included; the first start with cloud-init's first boot: "+seconds(all))
	r.delete()
}

// systemds makes n containers with hostler and with lxc launch, four at once, and
// waits until cloud-init is done in each.
func (r *rig) systemds(n int) {
	r.b.Helper()
	var text strings.Builder
	text.WriteString("version: 1\nmachines:\n")
	for _, name := range names("m", n) {
		fmt.Fprintf(&text, "  %s: {type: lxd, image: debian/12}\n", name)
	}
	file := r.agent.File("bench", text.String())
	ours := took(func() { r.agent.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "30m") })
	r.delete()
	theirs := took(func() { r.launch(names("l", n)) })
	r.client(append([]string{"delete", "-f"}, names("l", n)...)...)
	ratio(fmt.Sprintf("apply of %d Debian containers until cloud-init is done / lxc launch, 4 at once", n), []time.Duration{ours}, []time.Duration{theirs}, 1)
}

// launch has LXD's client make containers of the image that hostler imported.
func (r *rig) launch(names []string) {
	r.b.Helper()
	var images []string
	if err := r.lxd.API(http.MethodGet, "/1.0/images", nil, &images); err != nil {
		r.b.Fatal(err)
	}
	images = slices.DeleteFunc(images, func(image string) bool { return path.Base(image) == r.lxd.TinyFingerprint })
	if len(images) != 1 {
		r.b.Fatalf("not one image: %v", images)
	}
	var mu sync.Mutex
	var failed error
	try := func(args ...string) {
		if err := r.try(r.lxd.Daemon.Client, args...); err != nil {
			mu.Lock()
			failed = errors.Join(failed, err)
			mu.Unlock()
		}
	}
	var waits sync.WaitGroup
	inTurns(4, names, func(name string) {
		try("launch", path.Base(images[0]), name)
		waits.Go(func() { try("exec", name, "--", "cloud-init", "status", "--wait") })
	})
	waits.Wait()
	if failed != nil {
		r.b.Fatal(failed)
	}
}
