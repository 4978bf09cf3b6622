package lxdtest

import (
	"os"
	"path/filepath"
	"strings"
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

// removePairs removes the veth pairs that are left from an LXD that was killed
// while it started an instance: made after before was read, and with both ends
// still on the host.
func removePairs(before map[string]bool) {
	number := func(name, what string) string {
		text, _ := os.ReadFile(filepath.Join("/sys/class/net", name, what))
		return strings.TrimSpace(string(text))
	}
	left := map[string]string{} // index → name
	for name := range linkNames() {
		if strings.HasPrefix(name, "veth") && !before[name] {
			left[number(name, "ifindex")] = name
		}
	}
	for index, name := range left {
		peer, here := left[number(name, "iflink")]
		if !here || number(peer, "iflink") != index {
			continue
		}
		p, err := os.StartProcess("/usr/sbin/ip", []string{"ip", "link", "delete", name}, &os.ProcAttr{})
		if err == nil {
			_, _ = p.Wait()
		}
	}
}
