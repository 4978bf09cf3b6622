//go:build integration

package bench

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/lxc/lxctest"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// lxcKept is an agent that keeps containers of classic LXC.
type lxcKept struct {
	b     *testing.B
	agent *harness.Agent
	woken int
}

// keepLXC makes the containers and measures applies that change nothing.
func keepLXC(b *testing.B) *lxcKept {
	b.Helper()
	a := harness.NewAgent(b, b.TempDir())
	a.Configure("namespace: benchlxc\nconcurrency: 8\n")
	host := lxctest.Start(b, filepath.Join(a.Dir, "lxc"), "benchlxc")
	a.Prefix = host.Prefix()
	image := filepath.Join(a.Dir, "tiny.tar")
	if err := lxdtest.BuildTiny(image, ""); err != nil {
		b.Fatal(err)
	}
	content, err := os.ReadFile(image)
	if err != nil {
		b.Fatal(err)
	}
	a.Start()
	var text strings.Builder
	text.WriteString("version: 1\nmachines:\n")
	for _, name := range names("m", fleet) {
		fmt.Fprintf(&text, "  %s: {type: lxc, image: \"file:%s#sha256=%x\"}\n", name, image, sha256.Sum256(content))
	}
	file := a.File("site", text.String())
	a.Run("apply", "--allow", "destroy", "-f", file, "--wait")
	time.Sleep(releaseOfMemory)

	const ofChildren = 11 // the minor faults of children that ended; a program has some
	faults := statOf(b, a.PID(), ofChildren)
	var all []time.Duration
	for range 10 {
		all = append(all, took(func() { a.Run("apply", "--allow", "destroy", "-f", file, "--wait") }))
	}
	faults = statOf(b, a.PID(), ofChildren) - faults
	bound("apply of 24 LXC machines that changes nothing", milliseconds(median(all)), 30, "ms", "median of 10: "+seconds(all))
	bound("faults of programs that hostlerd ran for these", float64(faults), 0, "faults", "minor faults of its children that ended")
	return &lxcKept{b: b, agent: a}
}

// begin begins to count.
func (k *lxcKept) begin() { k.woken = wakeupsOf(k.b, k.agent.PID()) }

// end records what was counted since begin, some minutes ago.
func (k *lxcKept) end(minutes float64) {
	woken := wakeupsOf(k.b, k.agent.PID()) - k.woken
	bound("wake-ups of hostlerd's threads a second, idle with 24 LXC machines", float64(woken)/(minutes*60), 1, "wake-ups", "voluntary context switches of all threads")
}

func (k *lxcKept) stop() {
	k.agent.Run("delete", "declaration/site", "--wait")
	k.agent.Stop()
}
