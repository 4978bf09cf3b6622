//go:build integration

package state_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hostler/agent/state"
	"hostler/internal/fault"
)

// A store on a full disk refuses writes, loses nothing and recovers when there
// is room again.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1M,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	l, _ := open(t, state.Options{Dir: dir})
	ballast := filepath.Join(dir, "ballast")
	write := func(i int) error {
		_, err := l.Write(t.Context(), state.Atomic, state.Write{
			ID: state.ID{Kind: "machine", Name: fmt.Sprintf("m%d", i)}, Spec: fmt.Appendf(nil, `{"s":%q}`, strings.Repeat("s", 2000)),
		})
		return err
	}
	done := 0
	var err error
	for ; err == nil && done < 1000; done++ {
		if done == 20 {
			if f, err := os.Create(ballast); err != nil {
				t.Fatal(err)
			} else {
				_ = f.Truncate(1 << 20)
				for b := make([]byte, 4096); err == nil; _, err = f.Write(b) {
				}
				_ = f.Close()
			}
		}
		err = write(done)
	}
	done-- // the last write failed
	if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "no space") || l.Health() != nil {
		t.Fatalf("after %d writes: %v, health %v", done, err, l.Health())
	}
	if objects, _, err := l.List(t.Context()); err != nil || len(objects) != done {
		t.Errorf("%d objects of %d, %v", len(objects), done, err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := write(done); err != nil {
		t.Errorf("with room again: %v", err)
	}
	want := contents(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, report := open(t, state.Options{Dir: dir})
	if contents(t, again) != want || report.Rebuilt {
		t.Errorf("opened again: %+v", report)
	}
}

// If a full disk prevents opening the store, the error names the directory. The
// store opens unchanged when there is room again.
func TestOpenOnAFullDisk(t *testing.T) {
	for what, used := range map[string]bool{"a new one": false, "one in use": true} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1M,mode=0700"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := syscall.Unmount(dir, 0); err != nil {
					t.Error(err)
				}
			})
			want := ""
			if used {
				l, _ := open(t, state.Options{Dir: dir})
				if _, err := l.Write(t.Context(), state.Atomic, state.Write{ID: state.ID{Kind: "machine", Name: "web"}, Spec: []byte(`{}`)}); err != nil {
					t.Fatal(err)
				}
				want = contents(t, l)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			ballast := filepath.Join(dir, "ballast")
			f, err := os.Create(ballast)
			if err != nil {
				t.Fatal(err)
			}
			for b := make([]byte, 4096); err == nil; _, err = f.Write(b) {
			}
			_ = f.Close()
			_, report, err := state.Open(t.Context(), state.Options{Dir: dir})
			if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "no space left on the file system of "+dir+": free some") || report.Rebuilt {
				t.Errorf("%v, %+v", err, report)
			}
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			l, report := open(t, state.Options{Dir: dir})
			if report.Rebuilt || used && contents(t, l) != want {
				t.Errorf("with room again: %+v", report)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
