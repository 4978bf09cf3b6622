//go:build integration && long

package scale

import (
	"testing"
	"time"
)

// A hundred Debian machines with systemd run side by side.
func TestHundredMachines(t *testing.T) { machines(t, 100, time.Hour) }
