//go:build integration

package bench

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/tests/harness"
)

// BenchmarkKept measures the cost of making and of keeping machines, through a
// proxy that counts requests to LXD.
func BenchmarkKept(b *testing.B) {
	n := sizeOf(b, 100)
	r := newRig(b, lxdtest.LXD, true, "concurrency: 8") // as lxd-benchmark
	r.quiet()
	r.proxy.Forget()
	syncs, cpu := r.syncs(), r.cpu()
	r.apply(fleet)
	used := r.cpu() - cpu
	bound(fmt.Sprintf("requests to LXD for an apply of %d", fleet), float64(r.proxy.Count("", "/")-r.proxy.Count("", "/1.0/events")), 4*fleet+6, "requests", r.requests())
	bound(fmt.Sprintf("syncs of the store for an apply of %d", fleet), float64(r.syncs()-syncs), 2*fleet+10, "syncs", "counted by the agent")
	bound(fmt.Sprintf("CPU time of hostlerd for an apply of %d", fleet), used.Seconds(), 0.5, "s", "user and system, with the setup of LXD and the image; the target is a tenth of the time of lxd-benchmark on two processors")
	b.Run("Unchanged", r.unchanged)
	b.Run("Death", r.deaths)
	b.Run("Many", func(*testing.B) { r.many(n) })
	records := startRecords(b)
	records.made()
	b.Run("Idle", func(b *testing.B) {
		domains, classic := keepDomains(b), keepLXC(b)
		r.idle(b, n, records, domains, classic)
		records.stop()
		domains.stop()
		classic.stop()
	})
	b.Run("Start", func(b *testing.B) { r.starts(b, n) })
	b.Run("Unit", func(b *testing.B) { r.unit(b, n) })
	r.delete()
}

// unchanged applies declarations without changes.
func (r *rig) unchanged(b *testing.B) {
	file := r.agent.File("bench", r.declaration(fleet))
	var all []time.Duration
	var lists []int // whatever is asked about instances
	r.quiet()
	for range 10 {
		r.proxy.Forget()
		all = append(all, took(func() { r.agent.Run("apply", "--allow", "destroy", "-f", file, "--wait") }))
		lists = append(lists, r.proxy.Count("", "/1.0/instances"))
	}
	r.commands()
	bound("apply of 24 that changes nothing", milliseconds(median(all)), 30, "ms", fmt.Sprintf("median of 10 (%s); %s", seconds(all), r.listing()))
	exactly("list requests to LXD for an apply of 24 that changes nothing", lists, 1, "requests",
		fmt.Sprintf("each %v; the last asked LXD %s", lists, r.requests()))
}

// listing tells how long LXD takes for the one request of such an apply.
func (r *rig) listing() string {
	r.b.Helper()
	var all []time.Duration
	for range 10 {
		all = append(all, took(func() {
			if err := r.lxd.API(http.MethodGet, "/1.0/instances?recursion=1", nil, nil); err != nil {
				r.b.Fatal(err)
			}
		}))
	}
	return fmt.Sprintf("LXD's listing alone takes %.0f ms", milliseconds(median(all)))
}

// commands measures the commands that people and scripts call most.
func (r *rig) commands() {
	for _, c := range []struct {
		name   string
		args   []string
		target float64
	}{{"hostler version", []string{"version"}, 10}, {"hostler get machines of 24", []string{"get", "machines"}, 20}} {
		var all []time.Duration
		for range 20 {
			all = append(all, took(func() { r.agent.Run(c.args...) }))
		}
		bound(c.name, milliseconds(median(all)), c.target, "ms", "median of 20, with the start of the process")
	}
	// As `make build` links it.
	program := filepath.Join(r.b.TempDir(), "hostler")
	harness.Run(r.b, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "hostler/cmd/hostler")
	info, err := os.Stat(program)
	if err != nil {
		r.b.Fatal(err)
	}
	bound("size of the command line's stripped binary", float64(info.Size())/1e6, 10, "MB", "with the toolchain of this clone")
}

// quiet waits until LXD gets no more requests, so that requests after a create
// do not count for the next apply.
func (r *rig) quiet() {
	asked, since := -1, time.Now()
	harness.Wait(r.b, "LXD to be asked nothing for 2 s", time.Minute, func() error {
		if n := r.proxy.Count("", "/"); n != asked {
			asked, since = n, time.Now()
		}
		if time.Since(since) < 2*time.Second {
			return fmt.Errorf("%d requests", asked)
		}
		return nil
	})
}

// requests returns the proxy's counts, without the names of instances.
func (r *rig) requests() string {
	kinds := map[string]int{}
	total := 0
	for request, n := range r.proxy.Counts() {
		path, query, _ := strings.Cut(request, "?")
		parts := strings.Split(path, "/")
		for i, part := range parts {
			if i == 3 && part != "" && parts[2] != "images" {
				parts[i] = "…"
			}
		}
		kind := strings.Join(parts, "/")
		if strings.HasPrefix(query, "recursion") {
			kind += "?" + query
		}
		kinds[kind] += n
		total += n
	}
	texts := []string{fmt.Sprint(total, " in all")}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		texts = append(texts, fmt.Sprintf("%d %s", kinds[kind], kind))
	}
	return strings.Join(texts, ", ")
}

// deaths kills one init after the other, each container's once, and waits for the
// request to start it and until it is ready again. LXD is asked at the same time when
// it knows of the death itself.
func (r *rig) deaths(b *testing.B) {
	const kills = fleet
	var all, known, beyond []time.Duration
	events := r.watch("instance-shutdown")
	for i := range kills {
		name := names("m", fleet)[i%fleet]
		pid := r.settled(b, name, 0)
		began, knew := make(chan time.Time, 1), make(chan time.Time, 1)
		r.proxy.Watch(func(method, path string) {
			if method == http.MethodPut && path == "/1.0/instances/"+name+"/state" {
				select {
				case began <- time.Now():
				default:
				}
			}
		})
		died := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		go func() {
			var instance struct{ Status string }
			for r.lxd.API(http.MethodGet, "/1.0/instances/"+name, nil, &instance) == nil && instance.Status == "Running" {
			}
			knew <- time.Now()
		}()
		select {
		case at := <-began:
			all, known = append(all, at.Sub(died)), append(known, (<-knew).Sub(died))
			// The agent may see the death before LXD does.
			beyond = append(beyond, max(0, at.Sub(events.of(r, name, died))))
		case <-time.After(time.Minute):
			b.Fatalf("%s was not started again", name)
		}
		r.settled(b, name, pid)
	}
	r.proxy.Watch(nil)
	spread := func(all []time.Duration) string {
		return fmt.Sprintf("median %.0f ms, p90 %.0f ms, max %.0f ms", milliseconds(median(all)), milliseconds(percentile(all, 90)), milliseconds(slices.Max(all)))
	}
	bound("from a container's death to its start, p99 of 24", milliseconds(percentile(all, 99)), 200, "ms",
		spread(all)+"; LXD itself knew after "+spread(known))
	bound("from LXD's event of a container's death to its start, p99 of 24", milliseconds(percentile(beyond, 99)), 20, "ms", spread(beyond))
}

// settled waits until a machine is ready with another init than the dead one
// and returns the init's process.
func (r *rig) settled(b *testing.B, name string, dead int) (pid int) {
	harness.Wait(b, name, time.Minute, func() error {
		var state struct{ Pid int }
		if err := r.lxd.API(http.MethodGet, "/1.0/instances/"+name+"/state", nil, &state); err != nil {
			return err
		}
		pid = state.Pid
		if pid <= 0 || pid == dead {
			return fmt.Errorf("it has no new init")
		}
		if status := r.agent.Machines()[name].Status; status != "running" {
			return fmt.Errorf("it is %s", status)
		}
		return nil
	})
	return pid
}

// releaseOfMemory is longer than an agent waits after its last pass until it gives
// its free memory back.
const releaseOfMemory = 15 * time.Second

// idle leaves the agent, those with domains and with containers of classic LXC, and
// the process with many records alone, all in the same minutes.
func (r *rig) idle(b *testing.B, n int, records *idleProcess, domains *kvmRig, classic *lxcKept) {
	const minutes = 2 // the interval of passes over all machines
	time.Sleep(releaseOfMemory)
	r.proxy.Forget()
	records.begin()
	domains.begin()
	classic.begin()
	woken := r.wakeups()
	time.Sleep(minutes * time.Minute)
	woken = r.wakeups() - woken
	records.end(minutes)
	domains.end(minutes)
	classic.end(minutes)
	requests := r.proxy.Count("", "/") - r.proxy.Count("", "/1.0/events")
	detail := fmt.Sprintf("in %d minutes: %s", minutes, r.requests())
	bound(fmt.Sprintf("requests to LXD per idle minute with %d machines", n), float64(requests)/minutes, 1, "requests", detail)
	memory := memoryOf(b, r.agent.PID())
	bound(fmt.Sprintf("wake-ups of hostlerd's threads a second, idle with %d machines", n), float64(woken)/(minutes*60), 1, "wake-ups", "voluntary context switches of all threads")
	bound(fmt.Sprintf("resident memory of hostlerd idle with %d machines", n), float64(memory["VmRSS"])/1024, 32, "MiB",
		fmt.Sprintf("anonymous %d MiB, of files %d MiB, highest ever %d MiB", memory["RssAnon"]>>10, memory["RssFile"]>>10, memory["VmHWM"]>>10))
}
