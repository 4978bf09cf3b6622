package provisioner

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

// RetryPolicy holds the delays for failed operations.
type RetryPolicy struct {
	// Retries is the number of attempts after the first. Delay is the time
	// before each of these.
	Retries int
	Delay   time.Duration
	// Interval is the time between attempts once the retries are used up.
	Interval time.Duration
}

// Fail records a failed operation in the machine's status. Transient errors are
// retried after Delay until Retries are used up, and after Interval from then
// on. Conflicts are retried after Delay, which doubles up to Interval, because
// another process may end a conflict at any time. All other errors wait for the
// operator, a changed declaration or an event about the machine.
func Fail(s *spec.MachineStatus, uid string, err error, p RetryPolicy, now time.Time) {
	kind, attempt := fault.KindOf(err), s.Attempts.Count+1
	c := spec.Condition{Type: ConditionFailed, Status: true, Reason: reasonFailed, Message: err.Error(), Since: now}
	var delay func(int) time.Duration
	after := func(d time.Duration) time.Duration {
		d = jittered(d, uid, attempt)
		delay = func(int) time.Duration { return d }
		return d
	}
	switch {
	case kind == fault.Conflict:
		after(reconcile.Backoff{Base: p.Delay, Max: p.Interval}.After(attempt))
	case kind != fault.Transient && kind != fault.NotReady:
	case attempt <= p.Retries:
		kind, c.Reason = fault.Transient, reasonRetrying
		c.Message = fmt.Sprintf("%v; retry %d of %d in %s", err, attempt, p.Retries, shown(after(p.Delay)))
	default:
		kind = fault.Transient
		after(p.Interval)
	}
	reconcile.Failed(&s.Attempts, kind, now, delay)
	s.Conditions = spec.SetCondition(slices.Clone(s.Conditions), c)
	s.Percent = nil
	assessFailed(s)
}

// shown returns the delay rounded for a message.
func shown(delay time.Duration) time.Duration {
	if delay < time.Second {
		return delay.Round(time.Millisecond)
	}
	return delay.Round(time.Second)
}

// maxJitter is the largest fraction by which jittered() lengthens a delay. It
// spreads the retries of machines that failed together, e.g. because the
// hypervisor restarted.
const maxJitter = 0.25

// jittered returns delay, lengthened by a fraction that differs between
// machines and attempts. The fraction depends only on the arguments, so that
// Plan stays pure.
func jittered(delay time.Duration, uid string, attempt int) time.Duration {
	return reconcile.Backoff{Base: delay, Max: delay, Jitter: maxJitter}.Next(1, func() float64 {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s", attempt, uid))
		return float64(binary.BigEndian.Uint32(sum[:])) / (1 << 32)
	})
}

// longestDelay returns the longest possible delay before a retry.
func (c Config) longestDelay() time.Duration {
	longest := max(c.RetryDelay, c.TransientRetryInterval)
	return longest + time.Duration(float64(longest)*maxJitter)
}

// deathPause returns the delay between two starts of a machine whose instance
// died soon after its last starts. It is 0 for fewer than two deaths, 1 s for
// two, and doubles with each further death up to 5 min.
func (d *Desired) deathPause() time.Duration {
	if d.Status.Deaths < 2 {
		return 0
	}
	return jittered(min(time.Second<<min(d.Status.Deaths-2, 20), 5*time.Minute), d.UID, d.Status.Deaths)
}
