// Package hosttest helps tests with the host's global settings, which it
// restores after a test, and with the host's sockets and users.
package hosttest

import (
	"os"
	"testing"
)

// KeepForwarding restores net.ipv4.ip_forward when the test ends, because
// hypervisors set it for their networks.
func KeepForwarding(t testing.TB) {
	t.Helper()
	const parameter = "/proc/sys/net/ipv4/ip_forward"
	Share(t, parameter, func() func(testing.TB) {
		before, err := os.ReadFile(parameter)
		if err != nil {
			t.Fatalf("cannot read %s: %v", parameter, err)
		}
		return func(t testing.TB) {
			if now, err := os.ReadFile(parameter); err == nil && string(now) != string(before) {
				if err := os.WriteFile(parameter, before, 0); err != nil {
					t.Errorf("cannot set %s back: %v", parameter, err)
				}
			}
		}
	})
}
