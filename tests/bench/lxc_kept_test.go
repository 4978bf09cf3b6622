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

// BenchmarkLXCKept has an agent keep 24 containers of classic LXC.
func BenchmarkLXCKept(b *testing.B) {
	const minutes = 2 // the interval of passes over all machines
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
	time.Sleep(20 * time.Second) // the last pass and the release of memory

	const ofChildren = 11 // the minor faults of children that ended; a program has some
	faults := statOf(b, a.PID(), ofChildren)
	var all []time.Duration
	for range 10 {
		all = append(all, took(func() { a.Run("apply", "--allow", "destroy", "-f", file, "--wait") }))
	}
	faults = statOf(b, a.PID(), ofChildren) - faults
	bound("apply of 24 LXC machines that changes nothing", milliseconds(median(all)), 30, "ms", "median of 10: "+seconds(all))
	bound("faults of programs that hostlerd ran for these", float64(faults), 0, "faults", "minor faults of its children that ended")

	time.Sleep(20 * time.Second)
	woken := wakeupsOf(b, a.PID())
	time.Sleep(minutes * time.Minute)
	woken = wakeupsOf(b, a.PID()) - woken
	bound("wake-ups of hostlerd's threads a second, idle with 24 LXC machines", float64(woken)/(minutes*60), 1, "wake-ups", "voluntary context switches of all threads")
	a.Run("delete", "declaration/site", "--wait")
}
