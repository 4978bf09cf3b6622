package spec

import (
	"fmt"
	"strings"
	"time"
)

// ParseDuration reads a duration from text, e.g. 90s, 5m or 1h30m. It must not
// be negative. The error says how to correct the text.
func ParseDuration(s string) (Duration, error) {
	v, err := time.ParseDuration(s)
	switch {
	case s == "":
		return 0, fmt.Errorf("a duration is missing; write it like 90s or 5m")
	case err != nil && isDigits(s):
		return 0, fmt.Errorf("%s has no unit; write %ss for seconds, or the number with m or h", quote(s), quoteless(s))
	case err != nil && strings.HasSuffix(s, "d") && isDigits(s[:len(s)-1]):
		return 0, fmt.Errorf("%s: days are not supported; write hours, like 24h for one day", quote(s))
	case err != nil && isDigits(strings.TrimRight(s, "hms")):
		return 0, fmt.Errorf("%s is too long to be a duration; write it like 90s, 5m or 1h30m", quote(s))
	case err != nil:
		return 0, fmt.Errorf("%s is not a duration; write it like 90s, 5m or 1h30m", quote(s))
	case v < 0:
		return 0, fmt.Errorf("%s is negative; write a duration like 90s", quote(s))
	}
	return Duration(v), nil
}

// Std returns the duration as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String writes the duration without zero parts: 5m, not 5m0s.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText writes the duration for JSON and YAML.
func (d Duration) MarshalText() ([]byte, error) {
	if d < 0 {
		return nil, fmt.Errorf("cannot write the negative duration %s", time.Duration(d))
	}
	return []byte(d.String()), nil
}

// UnmarshalText reads the duration from text, as ParseDuration() does.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = v
	return nil
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
