//go:build integration && long

package kvm

import (
	"strings"
	"testing"
)

// The example as it stands, with Debian in both.
func TestUnchangedMixedExample(t *testing.T) {
	h := startBoth(t)
	keep := h.agent.KeepImages()
	h.agent.Start()
	h.clean(t)
	text := example(t, "mixed.yaml")
	h.applied(t, text)
	keep()
	for machine, other := range map[string]string{"web": "10.20.0.20", "db": "10.20.0.10"} {
		// The archive is the outside; a neighbour answers where it is asked for
		// its SSH, or refuses.
		out := h.agent.Run("exec", machine, "--", "sh", "-c", "apt-get -o Acquire::Retries=2 update 2>&1")
		if !strings.Contains(out, "Reading package lists...") || strings.Contains(out, "Err:") || strings.Contains(out, "W:") {
			t.Errorf("apt-get update in %s:\n%s", machine, out)
		}
		if out, _ := h.agent.Try("exec", machine, "--", "bash", "-c", "timeout 10 bash -c '</dev/tcp/"+other+"/22' 2>&1; ip neigh show "+other); !strings.Contains(out, "lladdr") {
			t.Errorf("%s does not reach %s: %s", machine, other, out)
		}
	}
	out := h.agent.Run("exec", "db", "--", "sh", "-c", "readlink -f /dev/hostler-data; cloud-init status")
	if !strings.Contains(out, "/dev/vd") || !strings.Contains(out, "done") {
		t.Errorf("in the guest: %s", out)
	}
	// D4, D5: how far the guest is, by its own word and by its host key.
	if out := h.agent.Run("show", "machine/db"); !strings.Contains(out, "cloud-init: done; SSH answers at 10.20.0.20") {
		t.Errorf("show says:\n%s", out)
	}
	pid := h.kvm.Guest("db")
	if h.agent.Apply("site", text); h.kvm.Guest("db") != pid {
		t.Error("the guest was restarted")
	}
	h.gone(t)
}
