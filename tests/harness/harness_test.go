//go:build integration

package harness

import (
	"strings"
	"testing"
)

// A test host is a machine: systemd runs, apt reaches the archive, and an LXD
// of its own runs a container.
func TestHostRunsLXD(t *testing.T) {
	h := StartLXD(t, 40).StartHost("machine")
	h.Sh("apt-get -qq update")
	h.Install("lxd", "lxd-client")
	h.Sh("lxd waitready --timeout 30 && lxc storage create default dir && lxc profile device add default root disk path=/ pool=default")
	image, _ := TinyImage(t)
	h.Push(image, "/root/tiny.tar.gz")
	h.Sh("lxc image import /root/tiny.tar.gz --alias tiny && lxc launch tiny nested </dev/null")
	if out := h.Sh("lxc exec nested -- hostname </dev/null"); strings.TrimSpace(out) != "nested" {
		t.Errorf("the nested container is called %q", out)
	}
}
