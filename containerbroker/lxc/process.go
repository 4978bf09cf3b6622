package lxc

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
)

// archOf returns the architecture of a config in Debian's terms.
func archOf(c config) string {
	switch arch := c.get("lxc.arch"); arch {
	case "", "linux64":
		return runtime.GOARCH
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	case "i686", "i386", "x86", "linux32":
		return "i386"
	default:
		return arch
	}
}

func (d *Driver) process(pid int, parts ...string) string {
	return filepath.Join(append([]string{d.opts.Proc, strconv.Itoa(pid)}, parts...)...)
}

// addresses returns the global addresses of a guest, IPv4 first, each family
// sorted. It reads them in /proc and does not enter the guest.
func (d *Driver) addresses(pid int) []string {
	trie, _ := os.ReadFile(d.process(pid, "net/fib_trie"))
	six, _ := os.ReadFile(d.process(pid, "net/if_inet6"))
	found := append(fourIn(string(trie)), sixIn(string(six))...)
	slices.SortFunc(found, netip.Addr.Compare)
	found = slices.Compact(found)
	var texts []string
	for _, ip := range found[:min(len(found), containerbroker.MaxAddresses)] {
		texts = append(texts, ip.String())
	}
	return texts
}

// fourIn returns the addresses of fib_trie that are the guest's own.
func fourIn(trie string) (found []netip.Addr) {
	last := ""
	for line := range strings.Lines(trie) {
		line = strings.TrimSpace(line)
		if node, is := strings.CutPrefix(line, "|-- "); is {
			last = node
		} else if line == "/32 host LOCAL" {
			if ip, err := netip.ParseAddr(last); err == nil && ip.Is4() && !ip.IsLoopback() {
				found = append(found, ip)
			}
		}
	}
	return found
}

// sixIn returns the global addresses of if_inet6, whose columns are address,
// device number, prefix length, scope (00 is global), flags and device.
func sixIn(table string) (found []netip.Addr) {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) != 6 || len(f[0]) != 32 || f[3] != "00" || f[5] == "lo" {
			continue
		}
		var groups []string
		for at := 0; at < 32; at += 4 {
			groups = append(groups, f[0][at:at+4])
		}
		if ip, err := netip.ParseAddr(strings.Join(groups, ":")); err == nil {
			found = append(found, ip)
		}
	}
	return found
}

// age returns how long a process has run, or 0 if it is gone.
func (d *Driver) age(pid int) time.Duration {
	ticks, there := d.startOf(pid)
	if !there {
		return 0
	}
	return ageOf(ticks)
}

// startOf returns when a process started, in hundredths of a second since the
// host's start. there is false if the process is gone, or has ended and only
// waits until its parent reads its exit status.
func (d *Driver) startOf(pid int) (ticks int64, there bool) {
	stat, err := os.ReadFile(d.process(pid, "stat"))
	if err != nil {
		return 0, false
	}
	// The second field is the name in brackets, which may hold anything. After
	// it come the state and, as the 20th field, the start.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, false
	}
	ticks, err = strconv.ParseInt(fields[19], 10, 64)
	return ticks, err == nil
}

// ageOf returns the time since a start. The host's clock of that time goes on
// while the host sleeps.
func ageOf(ticks int64) time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	return max(time.Duration(now.Nano())-time.Duration(ticks)*10*time.Millisecond, time.Millisecond)
}

// inits remembers the inits of instances. The time of its start tells a process
// from a later process with the same id.
type inits struct {
	mu    sync.Mutex
	known map[string]initProcess
}

type initProcess struct {
	pid   int
	ticks int64
}

// initOf returns the init of a running instance. It asks the monitor only for an
// init that it does not know.
func (d *Driver) initOf(ctx context.Context, name string) (initProcess, error) {
	d.inits.mu.Lock()
	known := d.inits.known[name]
	d.inits.mu.Unlock()
	if known.pid != 0 {
		if ticks, there := d.startOf(known.pid); there && ticks == known.ticks {
			return known, nil
		}
	}
	pid, err := d.pidOf(ctx, name)
	if err != nil {
		return initProcess{}, err
	}
	found := initProcess{pid: pid}
	found.ticks, _ = d.startOf(pid)
	d.inits.set(name, found)
	return found, nil
}

// set remembers an init, or forgets it if it is the zero value.
func (i *inits) set(name string, p initProcess) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.known == nil {
		i.known = map[string]initProcess{}
	}
	i.known[name] = p
	if p == (initProcess{}) {
		delete(i.known, name)
	}
}
