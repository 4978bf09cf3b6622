//go:build integration

package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"hostler/agent/provisioner"
	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker/brokertest"
	"hostler/internal/idle"
	"hostler/tests/harness"
)

// idleRecords is the environment variable that has the test's program keep
// machines on a fake broker. Its value is the directory of the store.
const idleRecords = "HOSTLER_BENCH_RECORDS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(idleRecords); dir != "" {
		if err := keepRecords(context.Background(), dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// records is the number of machines on the fake broker.
const records = 1000

// keepRecords declares machines, makes them on a fake broker and keeps them. It
// makes the file "made" in dir when all run.
func keepRecords(ctx context.Context, dir string) error {
	store, _, err := state.Open(ctx, state.Options{Dir: filepath.Join(dir, "store")})
	if err != nil {
		return err
	}
	running := true
	var writes []state.Write
	for _, name := range names("m", records) {
		record := spec.MachineRecord{Header: spec.Header{Declaration: "bench"}, Machine: spec.Machine{Type: spec.LXD, Image: "debian/12", Running: &running}}
		writes = append(writes, state.Write{ID: state.ID{Kind: spec.KindMachine, Name: name}, Spec: spec.Encode(record), Life: state.Alive})
	}
	if _, err := store.Write(ctx, state.Atomic, writes...); err != nil {
		return err
	}
	fake := brokertest.New()
	memory := idle.New(slog.New(slog.DiscardHandler))
	ended := make(chan error, 2)
	go func() { ended <- memory.Run(ctx) }()
	common := reconcile.Common{Store: store, Metrics: memoryPasses{memory}, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
	go func() {
		ended <- provisioner.New(common, provisioner.Options{
			Type: spec.LXD, Broker: fake, Differ: fake, Images: fake, NewToken: uuid.NewString,
			Defaults: provisioner.ConfigOf(spec.HostRecord{Config: spec.DefaultConfig()}, spec.LXD),
		}).Run(ctx)
	}()
	for made := 0; made < records; {
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Second):
		}
		objects, _, err := store.List(ctx, spec.KindMachine)
		if err != nil {
			return err
		}
		made = 0
		for _, o := range objects {
			var status spec.MachineStatus
			if err := o.Decode(nil, &status); err != nil {
				return err
			}
			if status.State == spec.MachineRunning {
				made++
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "made"), nil, 0o600); err != nil {
		return err
	}
	return <-ended
}

// memoryPasses notes the passes of the worker, as the agent does.
type memoryPasses struct{ memory *idle.Releaser }

func (p memoryPasses) Pass(time.Duration, error) { p.memory.Busy() }

func (memoryPasses) Operation(string, time.Duration, error) {}

// idleProcess is a process that keeps a thousand machines on a fake broker, with
// the store, the provisioner and the release of memory of an agent.
type idleProcess struct {
	b          *testing.B
	dir        string
	pid, woken int
	used       time.Duration
	stop       func()
}

func startRecords(b *testing.B) *idleProcess {
	b.Helper()
	dir := b.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), idleRecords+"="+dir)
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	b.Cleanup(stop)
	return &idleProcess{b: b, dir: dir, pid: child.Process.Pid, stop: stop}
}

// made waits until all machines run.
func (p *idleProcess) made() {
	p.b.Helper()
	harness.Wait(p.b, "the machines on a fake broker", 5*time.Minute, func() error {
		_, err := os.Stat(filepath.Join(p.dir, "made"))
		return err
	})
}

// begin begins to measure.
func (p *idleProcess) begin() {
	p.b.Helper()
	p.used, p.woken = cpuOf(p.b, p.pid), wakeupsOf(p.b, p.pid)
}

// end records what was used since begin, some minutes ago.
func (p *idleProcess) end(minutes float64) {
	p.b.Helper()
	used, woken := cpuOf(p.b, p.pid)-p.used, wakeupsOf(p.b, p.pid)-p.woken
	memory := memoryOf(p.b, p.pid)
	detail := fmt.Sprintf("in %g minutes with %d wake-ups; anonymous %d MiB, of files %d MiB, highest ever %d MiB",
		minutes, woken, memory["RssAnon"]>>10, memory["RssFile"]>>10, memory["VmHWM"]>>10)
	bound("resident memory idle with 1,000 records on a fake broker", float64(memory["VmRSS"])/1024, 64, "MiB", detail)
	bound("CPU time per idle minute with 1,000 records on a fake broker", milliseconds(used)/minutes, 50, "ms", detail)
}

// cpuOf returns the CPU time that the threads of a process have used.
func cpuOf(b testing.TB, pid int) (used time.Duration) {
	b.Helper()
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, path := range threads {
		text, _ := os.ReadFile(path) // the thread may have ended
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			n, _ := strconv.ParseInt(fields[0], 10, 64)
			used += time.Duration(n)
		}
	}
	if used == 0 {
		b.Fatal("the CPU time of the process cannot be seen")
	}
	return used
}

// memoryOf reads the sizes of a process, in KiB.
func memoryOf(b testing.TB, pid int) map[string]int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	sizes := map[string]int{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[2] == "kB" {
			sizes[strings.TrimSuffix(fields[0], ":")], _ = strconv.Atoi(fields[1])
		}
	}
	return sizes
}

// wakeupsOf counts how often the threads of a process have been woken.
func wakeupsOf(b testing.TB, pid int) (n int) {
	b.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		b.Fatal("the threads of the process cannot be seen: ", err)
	}
	counted := false
	for _, path := range threads {
		text, _ := os.ReadFile(path) // the thread may have ended
		for line := range strings.Lines(string(text)) {
			if value, found := strings.CutPrefix(line, "voluntary_ctxt_switches:"); found {
				count, err := strconv.Atoi(strings.TrimSpace(value))
				counted = counted || err == nil
				n += count
			}
		}
	}
	if !counted {
		b.Fatal("the kernel counts no wake-ups of the process")
	}
	return n
}
