package hostlock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"hostler/internal/fault"
	"hostler/internal/run"
)

func lockPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "lock", "host")
}

func take(t *testing.T, path string) *Lock {
	t.Helper()
	lock, err := Acquire(t.Context(), path, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func release(t *testing.T, lock *Lock) {
	t.Helper()
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestHolderIsKnownWhileHeld(t *testing.T) {
	path := lockPath(t)
	if _, held := Read(path); held {
		t.Error("a lock that never was is held")
	}
	lock := take(t, path)
	holder, held := Read(path)
	if !held || holder.PID != os.Getpid() || holder.Purpose != "test" || holder.BootID == "" || holder.Command == "" || time.Since(holder.Since) > time.Minute {
		t.Errorf("held %v by %+v", held, holder)
	}
	for _, file := range []string{path, holderPath(path)} {
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", info, err)
	}
	_, err := TryAcquire(path, "other")
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v", err)
	}
	release(t, lock)
	if holder, held := Read(path); held {
		t.Errorf("still held by %v", holder)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the lock file is gone: %v", err)
	}
}

func TestReleaseTwiceIsHarmless(t *testing.T) {
	path := lockPath(t)
	lock := take(t, path)
	release(t, lock)
	// This file gets the descriptor number that the lock had.
	other, err := os.Create(filepath.Join(t.TempDir(), "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	release(t, lock)
	if _, err := other.WriteString("x"); err != nil {
		t.Errorf("a stranger's file was closed: %v", err)
	}
}

func TestWaiterIsReportedAndContinues(t *testing.T) {
	path := lockPath(t)
	first := take(t, path)
	told := make(chan Holder, 1)
	got := make(chan error, 1)
	go func() {
		second, err := Acquire(context.Background(), path, "second", func(h Holder) { told <- h })
		if err == nil {
			err = second.Release()
		}
		got <- err
	}()
	if h := <-told; h.Purpose != "test" || h.PID != os.Getpid() {
		t.Errorf("told %+v", h)
	}
	release(t, first)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestStrangeFilesAreRefused(t *testing.T) {
	path := lockPath(t)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if _, err := TryAcquire(path, "test"); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("a link: %v", err)
	}
	if err := closeOnExec(path); !errors.Is(err, errSwapped) {
		t.Errorf("a link that came in between: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := TryAcquire(path, "test"); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("an open folder: %v", err)
	}
}

func TestReplacedLockFileIsNoticed(t *testing.T) {
	path := lockPath(t)
	lock := take(t, path)
	defer release(t, lock)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := closeOnExec(path); !errors.Is(err, errSwapped) {
		t.Errorf("got %v", err)
	}
}

// A daemon that is started while the lock is held, e.g. by a package's
// postinst, does not keep the lock.
func TestChildDoesNotInheritTheLock(t *testing.T) {
	path := lockPath(t)
	log := filepath.Join(t.TempDir(), "log")
	for range 20 {
		lock := take(t, path)
		child, err := run.Host{}.Run(t.Context(), run.Command{Path: "/bin/sleep", Args: []string{"60"}, Detach: log})
		if err != nil {
			t.Fatal(err)
		}
		release(t, lock)
		again, err := TryAcquire(path, "test")
		if alive := syscall.Kill(child.PID, 0); alive != nil {
			t.Errorf("the child is gone: %v", alive)
		}
		_ = syscall.Kill(child.PID, syscall.SIGKILL)
		if err != nil {
			t.Fatal(err)
		}
		release(t, again)
	}
}

// Children may start at any moment, also during an attempt.
func TestChildrenDuringAttemptsDoNotInherit(t *testing.T) {
	path := lockPath(t)
	log := filepath.Join(t.TempDir(), "log")
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if lock, err := attempt(path, "test"); err == nil {
				_ = lock.Release()
			}
		}
	})
	for range 50 {
		child, err := run.Host{}.Run(t.Context(), run.Command{Path: "/bin/sleep", Args: []string{"60"}, Detach: log})
		if err != nil {
			t.Fatal(err)
		}
		var file syscall.Stat_t
		if err := syscall.Stat(path, &file); err == nil && hasOpen(child.PID, file) {
			t.Error("a child has the lock file open")
		}
		_ = syscall.Kill(child.PID, syscall.SIGKILL)
	}
	close(done)
	wg.Wait()
}

func TestTimeoutsLeaveNothingBehind(t *testing.T) {
	path := lockPath(t)
	lock := take(t, path)
	timeOut := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Microsecond)
		defer cancel()
		if _, err := acquire(ctx, path, "second", nil, time.Millisecond, time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
	}
	timeOut()
	files, threads, routines := count(t, "fd"), count(t, "task"), runtime.NumGoroutine()
	for range 1000 {
		timeOut()
	}
	// The runtime may start a few threads; a thread per timeout would be a
	// thousand.
	if f, th, r := count(t, "fd"), count(t, "task"), runtime.NumGoroutine(); f > files || th > threads+5 || r > routines {
		t.Errorf("files %d to %d, threads %d to %d, goroutines %d to %d", files, f, threads, th, routines, r)
	}
	release(t, lock)
	release(t, take(t, path))
}

func TestTimeoutThenRetryNeverWedges(t *testing.T) {
	path := lockPath(t)
	for range 100 {
		lock := take(t, path)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := acquire(ctx, path, "second", nil, time.Millisecond, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		cancel()
		release(t, lock)
		second, err := TryAcquire(path, "second")
		if err != nil {
			t.Fatal(err)
		}
		release(t, second)
	}
}

func TestExclusion(t *testing.T) {
	path := lockPath(t)
	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				lock, err := acquire(t.Context(), path, "test", nil, time.Millisecond, time.Millisecond)
				if err != nil {
					t.Error(err)
					return
				}
				most.Store(max(most.Load(), inside.Add(1)))
				runtime.Gosched()
				inside.Add(-1)
				if err := lock.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d holders at once", most.Load())
	}
}

// Z32: the lock is free when its holder ends in any way.
func TestKilledHolderFreesTheLock(t *testing.T) {
	if path := os.Getenv("HOSTLOCK_CHILD"); path != "" {
		if _, err := Acquire(context.Background(), path, "child", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the parent kills it long before
		return
	}
	path := lockPath(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child, err := run.Host{}.Run(t.Context(), run.Command{
		Path:   self,
		Args:   []string{"-test.run=^TestKilledHolderFreesTheLock$"},
		Env:    []string{"HOSTLOCK_CHILD=" + path},
		Detach: filepath.Join(t.TempDir(), "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for holder, held := Read(path); !held || holder.PID != child.PID; holder, held = Read(path) {
		if time.Now().After(deadline) {
			t.Fatalf("held %v by %v", held, holder)
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := TryAcquire(path, "test"); !fault.Is(err, fault.Conflict) {
		t.Errorf("the child does not exclude: %v", err)
	}
	if err := syscall.Kill(child.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	lock, err := Acquire(ctx, path, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	release(t, lock)
}

func TestLockTable(t *testing.T) {
	const table = "1: FLOCK  ADVISORY  WRITE 708 fe:00:5678 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 709 fe:00:99 0 EOF\n2: POSIX  ADVISORY  WRITE 710 fe:00:77 0 EOF\ngarbage\n"
	for inode, want := range map[uint64]bool{5678: true, 99: false, 77: false, 1: false} {
		if got := lockTableHas(table, 0xfe, 0, inode); got != want {
			t.Errorf("inode %d: %v", inode, got)
		}
	}
}

func count(t *testing.T, what string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/" + what)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
