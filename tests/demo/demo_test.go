//go:build integration

// Package demo_test runs the demonstration where a newcomer would: on a host
// that has neither LXD nor anything else that hostler needs.
package demo_test

import (
	"strings"
	"testing"

	"hostler/tests/harness"
)

func TestDemo(t *testing.T) {
	h := harness.StartLXD(t, 42).StartHost("newcomer")
	h.Sh("apt-get -qq update")
	h.Install("make")
	h.PushClone("/root/hostler")
	// What a build leaves behind is the newcomer's own; what is compared
	// inside is the host.
	out, err := h.Try("cd /root/hostler && make demo </dev/null 2>&1")
	if err != nil {
		t.Fatalf("%v\n%s", err, h.Sh("tail -n 50 /root/hostler/.cache/demo/hostlerd.log || true"))
	}
	for _, want := range []string{"hostler works", "web", "worker", "running"} {
		if !strings.Contains(out, want) {
			t.Errorf("the demonstration does not show %q:\n%s", want, out)
		}
	}
	if out, err := h.Try("cd /root/hostler && make demo-clean </dev/null 2>&1"); err != nil || !strings.Contains(out, "no difference") {
		t.Errorf("the demonstration leaves something behind: %v\n%s", err, out)
	}
}
