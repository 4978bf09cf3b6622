package provisioner

import (
	"math"
	"time"

	"hostler/agent/spec"
)

// laps returns a function that returns the seconds since its last call, or since
// the call of laps.
func (w *Worker) laps() func() float64 {
	last := w.Now()
	return func() float64 {
		now := w.Now()
		took := now.Sub(last)
		last = now
		return seconds(took)
	}
}

// seconds returns the duration in seconds, with milliseconds.
func seconds(d time.Duration) float64 { return math.Round(max(d.Seconds(), 0)*1000) / 1000 }

// startTook returns the times after a start.
func startTook(before *spec.Took, start float64) *spec.Took {
	var t spec.Took
	if before != nil {
		t = *before
	}
	t.Start, t.Boot, t.CloudInit = start, 0, 0
	return &t
}

// bootTook returns the times of a machine that is ready. It changes nothing if
// this is not the first time since the start, or the agent did not start the
// machine. The guest cannot claim more time than the boot took.
func bootTook(before *spec.Took, boot float64, cloudInit time.Duration) *spec.Took {
	if before == nil || before.Boot > 0 {
		return before
	}
	t := *before
	t.Boot = max(boot, 0.001) // 0 would mean that it is not ready
	t.CloudInit = min(seconds(cloudInit), t.Boot)
	return &t
}
