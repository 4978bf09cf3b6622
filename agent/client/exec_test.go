package client

import (
	"errors"
	"strings"
	"testing"

	"hostler/agent/client/frames"
)

func TestBrokenFramesAreRefused(t *testing.T) {
	for name, raw := range map[string]string{
		"too long":   "\x00\xff\xff\xff\xff",
		"cut head":   "\x00\x00",
		"cut body":   "\x00\x00\x00\x00\x05abc",
		"short exit": "\x03\x00\x00\x00\x01a",
		"nothing":    "",
	} {
		if _, err := receive(strings.NewReader(raw), ExecOptions{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := frames.DecodeWindowSize([]byte("abc")); !errors.Is(err, frames.ErrBroken) {
		t.Errorf("a short size: %v", err)
	}
	for _, code := range []int{0, 1, 255, -1} {
		if got, err := frames.DecodeExit(frames.EncodeExit(code)); got != code || err != nil {
			t.Errorf("exit %d: %d, %v", code, got, err)
		}
	}
}
