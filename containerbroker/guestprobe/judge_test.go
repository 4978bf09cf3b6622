package guestprobe

import (
	"testing"
	"time"

	"hostler/containerbroker"
)

// A guest whose driver waited for an address that it does not need is ready
// without, but its other faults count.
func TestAnAddressThatIsNotNeeded(t *testing.T) {
	var ready containerbroker.Readiness
	var needless, needed containerbroker.Machine
	needed.ExpectAddress = true
	for report, want := range map[string]string{
		"init init\naddress missing\n":                        "",
		"init systemd\naddress missing\nsystem maintenance\n": "its systemd is in state maintenance",
	} {
		got := ""
		if err := Judge(needless, report, ready, time.Minute); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", report, got, want)
		}
	}
	if Judge(needed, "address missing\n", ready, time.Minute) == nil {
		t.Error("a guest without its needed address is ready")
	}
}
