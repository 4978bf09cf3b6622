package lxdtest

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// linkNames returns the set of the names of the host's network links.
func linkNames() map[string]bool {
	entries, _ := os.ReadDir("/sys/class/net")
	names := make(map[string]bool, len(entries))
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names
}

// startTime is longer than an LXD needs to make a veth pair and move one end
// into the container.
const startTime = 2 * time.Second

// removePairs removes the veth pairs that an LXD left behind when it was killed
// while it started an instance. Such a pair is not in before and keeps both
// ends on the host for startTime. If another LXD is starting an instance, one
// end of its pair leaves the host before that.
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

// pairs returns the names and indexes of the veth devices that are not in
// before and whose peer is also on the host.
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
