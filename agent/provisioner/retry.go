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

// RetryPolicy says how failed operations are retried.
type RetryPolicy struct {
	// Retries after the first attempt, Delay before each of them.
	Retries int
	Delay   time.Duration
	// Interval between attempts once the retries are used up.
	Interval time.Duration
}

// Fail writes a failed operation of the machine with that uid down. Transient
// errors are retried after Delay until Retries are used up and after Interval
// from then on; conflicts, which another process may end at any time, after
// Delay doubling to Interval. All others wait for the operator, a changed
// declaration or an event that bears on them.
func Fail(s *spec.MachineStatus, uid string, err error, p RetryPolicy, now time.Time) {
	kind := fault.KindOf(err)
	s.Attempts.Count++
	s.Attempts.ErrorKind = string(kind)
	s.Attempts.NextRetry = nil
	c := spec.Condition{Type: ConditionFailed, Status: true, Reason: reasonFailed, Message: err.Error(), Since: now}
	retryIn := func(delay time.Duration) time.Duration {
		delay = jittered(delay, uid, s.Attempts.Count)
		next := now.Add(delay)
		s.Attempts.NextRetry = &next
		return delay
	}
	switch {
	case kind == fault.Conflict:
		retryIn(reconcile.Backoff{Base: p.Delay, Max: p.Interval}.Next(s.Attempts.Count, nil))
	case kind != fault.Transient && kind != fault.NotReady:
	case s.Attempts.Count <= p.Retries:
		s.Attempts.ErrorKind, c.Reason = string(fault.Transient), reasonRetrying
		c.Message = fmt.Sprintf("%v; retry %d of %d in %s", err, s.Attempts.Count, p.Retries, shown(retryIn(p.Delay)))
	default:
		s.Attempts.ErrorKind = string(fault.Transient)
		retryIn(p.Interval)
	}
	s.Conditions = spec.SetCondition(slices.Clone(s.Conditions), c)
	s.Percent = nil
	assessFailed(s)
}

// shown is a delay as a message tells it.
func shown(delay time.Duration) time.Duration {
	if delay < time.Second {
		return delay.Round(time.Millisecond)
	}
	return delay.Round(time.Second)
}

// maxJitter is the part by which a delay may grow: machines that fail together,
// e.g. because the hypervisor was restarted, are not tried in one moment.
const maxJitter = 0.25

// jittered returns a delay before the attempt of that number, longer by a part
// that differs from machine to machine. The part follows from its arguments
// alone, so that a plan which depends on it stays pure.
func jittered(delay time.Duration, uid string, attempt int) time.Duration {
	return reconcile.Backoff{Base: delay, Max: delay, Jitter: maxJitter}.Next(1, func() float64 {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s", attempt, uid))
		return float64(binary.BigEndian.Uint32(sum[:])) / (1 << 32)
	})
}

// longestDelay is the longest before a retry.
func (c Config) longestDelay() time.Duration {
	longest := max(c.RetryDelay, c.TransientRetryInterval)
	return longest + time.Duration(float64(longest)*maxJitter)
}

// deathPause is the wait before a machine that died soon after its nth start
// in a row is started again: none for the first two, then 1 s doubling to
// 5 min.
func (d Desired) deathPause() time.Duration {
	if d.Status.Deaths < 2 {
		return 0
	}
	return jittered(min(time.Second<<min(d.Status.Deaths-2, 20), 5*time.Minute), d.UID, d.Status.Deaths)
}
