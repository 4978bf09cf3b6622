package storage_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"hostler/internal/fault"
	"hostler/storage"
)

// V6: no id is a path out of a source's directory.
func TestIDsAreNames(t *testing.T) {
	for id, ok := range map[string]bool{
		"a": true, "data": true, "web-1": true, "a" + strings.Repeat("b", 62): true,
		"": false, "a" + strings.Repeat("b", 63): false, "..": false, ".": false, "a/b": false, "../a": false, "/a": false,
		"A": false, "1a": false, "-a": false, "a.b": false, "a\x00": false, "a\n": false, "ä": false, "a b": false,
	} {
		err := storage.ValidateID(id)
		if (err == nil) != ok || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestPathsAreCleanAndAbsolute(t *testing.T) {
	for path, ok := range map[string]bool{
		"/srv": true, "/var/lib/hostler/mounts/www": true, "/srv/with space": true,
		"": false, "/": false, "srv": false, "/srv/": false, "/srv/../etc": false, "/srv/./a": false, "//srv": false, "/a\nb": false, "/a\x00": false,
	} {
		if err := storage.ValidatePath(path); (err == nil) != ok {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestRefsNeedStamps(t *testing.T) {
	for _, s := range []storage.Stamp{{}, {Namespace: "a"}, {UID: "b"}, {Namespace: "a/b", UID: "c"}, {Namespace: "..", UID: "c"}, {Namespace: "a", UID: "c\n"}} {
		if err := (storage.Ref{ID: "a", Stamp: s}).Validate(); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	r := storage.Ref{ID: "a", Stamp: storage.Stamp{Namespace: "hostler", UID: "0198-x"}}
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
	for _, other := range []storage.Stamp{{Namespace: "hostler", UID: "y"}, {Namespace: "other", UID: "0198-x"}} {
		if err := r.OwnedBy(other); !fault.Is(err, fault.Conflict) {
			t.Errorf("%+v: %v", other, err)
		}
	}
}

func TestSizes(t *testing.T) {
	for size, ok := range map[int64]bool{storage.MinSize - 1: false, storage.MinSize: true, -1: false, 1 << 61: false} {
		if err := storage.ValidateSize(size); (err == nil) != ok {
			t.Errorf("%d: %v", size, err)
		}
	}
	for size, want := range map[int64]int64{1: 4096, 4096: 4096, 4097: 8192, 1 << 20: 1 << 20} {
		if got := storage.RoundSize(size); got != want {
			t.Errorf("%d becomes %d", size, got)
		}
	}
	for size, want := range map[int64]string{5: "5 bytes", 1024: "1 KiB", 1536: "1.5 KiB", 256 << 20: "256 MiB", 10 << 40: "10 TiB"} {
		if got := storage.Bytes(size); got != want {
			t.Errorf("%d reads %q", size, got)
		}
	}
}

func TestBusyNamesItsHolders(t *testing.T) {
	holders := []storage.Holder{{PID: 7, Command: "sleep", Path: "/srv/x"}}
	err := fmt.Errorf("cannot unmount: %w", storage.Busy("/srv", "", holders))
	if err.Error() != "cannot unmount: /srv is in use: sleep (pid 7) holds /srv/x" || fault.KindOf(err) != fault.Transient {
		t.Errorf("%v", err)
	}
	var busy *storage.BusyError
	if !errors.As(err, &busy) || busy.Holders[0].PID != 7 {
		t.Errorf("%v", err)
	}
}

func TestSpaceWarns(t *testing.T) {
	for want, s := range map[string]storage.Space{
		"":                                {Path: "/a", Total: 100 << 30, Free: 50 << 30, Promised: 10 << 30},
		"sparse volumes may still need":   {Path: "/a", Total: 100 << 30, Free: 50 << 30, Promised: 60 << 30},
		"nearly full: 4 GiB free, sparse": {Path: "/a", Total: 100 << 30, Free: 4 << 30, Promised: 1 << 30},
		"/a is nearly full: 1 GiB free":   {Path: "/a", Total: 100 << 30, Free: 1 << 30},
	} {
		if got := s.Warning(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%+v: %q", s, got)
		}
	}
}

// S16: each item has its own result.
func TestEachItemHasItsOwnResult(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	got := storage.Each(ctx, []int{1, 2, 3, 4}, func(_ context.Context, n int) (int, error) {
		if n == 3 {
			cancel()
		}
		if n%2 == 0 {
			return 0, errors.New("even")
		}
		return n * n, nil
	})
	if got[0].Value != 1 || got[1].Err == nil || got[2].Value != 9 || !errors.Is(got[3].Err, context.Canceled) {
		t.Errorf("%v", got)
	}
}
