package packaging_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler/packaging"
)

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// An installation waits while cloud-init is at work: until its result, its
// failure, or a command that cloud-init waits for. apt does not run before.
func TestInstallationWaitsForCloudInit(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, dir string, failed *atomic.Bool){
		"result":  func(t *testing.T, dir string, _ *atomic.Bool) { touch(t, filepath.Join(dir, "result.json")) },
		"waiting": func(t *testing.T, dir string, _ *atomic.Bool) { touch(t, filepath.Join(dir, packaging.LiftFile)) },
		"failed":  func(_ *testing.T, _ string, failed *atomic.Bool) { failed.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var failed atomic.Bool
			hold := packaging.NewHold(dir, func(context.Context) bool { return failed.Load() }, time.Now)
			h := newHostHeld(t, hold)
			touch(t, filepath.Join(dir, "status.json"))
			var said []string
			err := h.apt.Install(t.Context(), []string{"toy"}, func(s string) {
				said = append(said, s)
				if len(said) > 1 {
					return
				}
				if _, held := hold.Held(); !held || len(h.fake.Calls()) > 0 {
					t.Errorf("held %t, commands %v", held, h.fake.Calls())
				}
				end(t, dir, &failed)
			})
			if err != nil || len(said) < 2 || said[0] != "waiting for cloud-init, which may install packages, for 0s" {
				t.Errorf("said %q, %v", said, err)
			}
			if _, held := hold.Held(); held || !slices.Contains(said, "installing toy") {
				t.Errorf("held %t after the end, said %q", held, said)
			}
		})
	}
}

// Without cloud-init, and after its end, nothing is held back.
func TestNoHoldWithoutCloudInit(t *testing.T) {
	dir := t.TempDir()
	hold := packaging.NewHold(dir, func(context.Context) bool { return false }, time.Now)
	progress := func(s string) { t.Error(s) }
	if err := hold.Wait(t.Context(), progress); err != nil {
		t.Error(err)
	}
	touch(t, filepath.Join(dir, "status.json"))
	touch(t, filepath.Join(dir, "result.json"))
	if err := hold.Wait(t.Context(), progress); err != nil {
		t.Error(err)
	}
}

// The limit covers all installations together.
func TestHoldIsBounded(t *testing.T) {
	dir := t.TempDir()
	touch(t, filepath.Join(dir, "status.json"))
	synctest.Test(t, func(t *testing.T) {
		hold := packaging.NewHold(dir, func(context.Context) bool { return false }, time.Now)
		start := time.Now()
		for range 2 {
			var last string
			if err := hold.Wait(t.Context(), func(s string) { last = s }); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != 15*time.Minute || !strings.Contains(last, "more than 15 minutes") {
				t.Errorf("held for %s, said %q", took, last)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		fresh := packaging.NewHold(dir, func(context.Context) bool { return false }, time.Now)
		if err := fresh.Wait(ctx, func(string) { cancel() }); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
