package spec

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"512MiB": 512 * MiB, "1GiB": GiB, "1024MiB": GiB, "64KiB": 64 * KiB, "2TiB": 2 * TiB, "0MiB": 0, "1000B": 1000,
		"9223372036854775807B": math.MaxInt64,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for text, message := range map[string]string{
		"": "missing", "512": "512MiB", "512M": "did you mean 512MiB?", "512mb": "did you mean 512MiB?", "1 GiB": "did you mean 1GiB?",
		"1.5GiB": "whole number", "GiB": "not a size", "-1GiB": "not a size", "8388608TiB": "too large", "9223372036854775808B": "too large",
		"1XiB": "use KiB", "１GiB": "not a size",
	} {
		if got, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("ParseSize(%q) = %d, %v, want an error with %q", text, got, err, message)
		}
	}
}

func TestSizeString(t *testing.T) {
	for size, want := range map[Size]string{0: "0B", GiB: "1GiB", 1536 * MiB: "1536MiB", GiB + 1: "1073741825B", 1024 * GiB: "1TiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d is written %s, want %s", size, got, want)
		}
	}
	if _, err := Size(-1).MarshalText(); err == nil {
		t.Error("a negative size is written")
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "0s": 0} {
		if got, err := ParseDuration(text); err != nil || got.Std() != want {
			t.Errorf("ParseDuration(%q) = %s, %v, want %s", text, got, err, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0s", 10 * time.Second: "10s", 90 * time.Second: "1m30s", 5 * time.Minute: "5m", time.Hour: "1h", 70 * time.Minute: "1h10m"} {
		if got := Duration(d).String(); got != want {
			t.Errorf("%d is written %s, want %s", d, got, want)
		}
	}
	for _, text := range []string{"", "5", "1d", "soon", "-1s"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %s", text, got)
		}
	}
}
