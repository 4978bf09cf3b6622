package cli

import (
	"fmt"
	"strings"
	"time"
)

// age formats the time since t in at most two units, e.g. 45s, 3m12s, 5h4m,
// 12d.
func age(now time.Time, t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return short(now.Sub(*t))
}

// until formats the time until t, e.g. "in 8s", or "now".
func until(now time.Time, t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	d := t.Sub(now)
	if d < time.Second {
		return "now"
	}
	return "in " + short(d)
}

// ago formats the time since t as part of a sentence, e.g. "3m12s ago".
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return short(now.Sub(t)) + " ago"
}

// short formats a duration in at most two units. It treats a negative duration,
// which differing clocks can cause, as zero.
func short(d time.Duration) string {
	d = max(d, 0)
	s := int64(d / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 10*60:
		return two(s/60, "m", s%60, "s")
	case s < 3600:
		return fmt.Sprintf("%dm", s/60)
	case s < 10*3600:
		return two(s/3600, "h", s%3600/60, "m")
	case s < 48*3600:
		return fmt.Sprintf("%dh", s/3600)
	default:
		return fmt.Sprintf("%dd", s/(24*3600))
	}
}

// two formats numbers of two units. It omits the second number if it is zero.
func two(big int64, bigUnit string, small int64, smallUnit string) string {
	if small == 0 {
		return fmt.Sprintf("%d%s", big, bigUnit)
	}
	return fmt.Sprintf("%d%s%d%s", big, bigUnit, small, smallUnit)
}

// duration formats a duration in the form that a user types, e.g. 10m, not
// 10m0s or 9m59.999998998s.
func duration(d time.Duration) string {
	if d >= time.Second {
		d = d.Round(time.Second)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
