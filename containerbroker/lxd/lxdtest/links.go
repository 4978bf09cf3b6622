package lxdtest

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// linkNames returns the host's links.
func linkNames() map[string]bool {
	entries, _ := os.ReadDir("/sys/class/net")
	names := make(map[string]bool, len(entries))
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names
}

// startTime is longer than an LXD needs from the making of a pair until one end
// is in the container.
const startTime = 2 * time.Second

// removePairs removes the veth pairs that are left from an LXD that was killed
// while it started an instance: made after before was read, and with both ends
// still on the host. The pair of an instance that another LXD is starting does
// not stay so.
func removePairs(before map[string]bool) {
	left := pairs(before)
	for deadline := time.Now().Add(startTime); len(left) > 0 && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		now := pairs(before)
		maps.DeleteFunc(left, func(name, index string) bool { return now[name] != index })
	}
	for name := range left {
		p, err := os.StartProcess("/usr/sbin/ip", []string{"ip", "link", "delete", name}, &os.ProcAttr{})
		if err == nil {
			_, _ = p.Wait()
		}
	}
}

// pairs returns the veth devices whose peer is also on the host and that are
// not in before, with their indexes.
func pairs(before map[string]bool) map[string]string {
	number := func(name, what string) string {
		text, _ := os.ReadFile(filepath.Join("/sys/class/net", name, what))
		return strings.TrimSpace(string(text))
	}
	names := map[string]string{} // by index
	for name := range linkNames() {
		if strings.HasPrefix(name, "veth") && !before[name] {
			names[number(name, "ifindex")] = name
		}
	}
	found := map[string]string{}
	for index, name := range names {
		if peer, here := names[number(name, "iflink")]; here && number(peer, "iflink") == index {
			found[name] = index
		}
	}
	return found
}
