package lxc

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

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
	stat, err := os.ReadFile(d.process(pid, "stat"))
	if err != nil {
		return 0
	}
	// The second field is the name in brackets, which may hold anything. The
	// start is the 20th field after it, in hundredths of a second since the
	// host's start.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return 0
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return 0
	}
	text, _ := os.ReadFile(filepath.Join(d.opts.Proc, "uptime"))
	first, _, _ := strings.Cut(string(text), " ")
	up, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return max(time.Duration(up*float64(time.Second))-time.Duration(ticks)*10*time.Millisecond, 0)
}

// startedAt returns when a process started.
func (d *Driver) startedAt(pid int) time.Time {
	age := d.age(pid)
	if age == 0 {
		return time.Time{}
	}
	return time.Now().Add(-age)
}
