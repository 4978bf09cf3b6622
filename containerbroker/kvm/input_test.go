package kvm

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler/internal/fault"
)

// A command gets its whole input. Silent input does not delay the command, and
// input that arrives too late is reported instead of lost.
func TestInputOfACommand(t *testing.T) {
	for name, text := range map[string]string{"none": "", "short": "line\n", "most": strings.Repeat("x", maxInput)} {
		t.Run(name, func(t *testing.T) {
			got, err := readInput(t.Context(), strings.NewReader(text))
			if err != nil || string(got.data) != text || got.late() {
				t.Errorf("read %d bytes, %v", len(got.data), err)
			}
		})
	}
	if _, err := readInput(t.Context(), strings.NewReader(strings.Repeat("x", maxInput+1))); !fault.Is(err, fault.Invalid) {
		t.Errorf("too much input: %v", err)
	}
	if got, err := readInput(t.Context(), nil); err != nil || got.data != nil || got.late() {
		t.Errorf("no input at all: %+v, %v", got, err)
	}
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		got, err := readInput(t.Context(), r)
		if err != nil || got.data != nil || got.late() {
			t.Errorf("silent input: %+v, %v", got, err)
		}
		_, _ = w.Write([]byte("late"))
		_ = w.Close()
		synctest.Wait()
		if !got.late() {
			t.Error("what came late is not told")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		go func() {
			time.Sleep(time.Second)
			_, _ = w.Write([]byte("slow "))
			time.Sleep(time.Minute)
			_, _ = w.Write([]byte("input"))
			_ = w.Close()
		}()
		if got, err := readInput(t.Context(), r); err != nil || string(got.data) != "slow input" {
			t.Errorf("slow input: %q, %v", got.data, err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, w := io.Pipe()
	if _, err := readInput(ctx, r); err == nil {
		t.Error("a person who left is waited for")
	}
	_ = w.Close()
}
