package lxd

import (
	"os"
	"testing"
	"time"
)

func sleeper(t *testing.T) *os.Process {
	t.Helper()
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "60"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		_, _ = p.Wait()
	})
	return p
}

func TestEndedInitsAreReported(t *testing.T) {
	var i inits
	told := make(chan string, 10)
	early, late, ours := sleeper(t), sleeper(t), sleeper(t)
	i.see("early", int64(early.Pid))
	stop := i.follow(func(name string, pid int64) { told <- name })
	i.see("late", int64(late.Pid))
	i.see("ours", int64(ours.Pid))
	i.see("ours", 0) // its end is our doing
	expect := func(name string) {
		t.Helper()
		select {
		case got := <-told:
			if got != name {
				t.Errorf("told of %s, want %s", got, name)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("not told of %s", name)
		}
	}
	_ = ours.Kill()
	_ = early.Kill()
	expect("early")
	if !i.justDied("early") || i.justDied("late") || i.justDied("ours") {
		t.Error("it is not remembered who just died")
	}
	_ = late.Kill()
	expect("late")
	i.see("late", int64(sleeper(t).Pid))
	if i.justDied("late") {
		t.Error("an instance that runs again counts as dead")
	}
	stop() // closes the remaining watches and waits
	if len(told) != 0 {
		t.Errorf("told of %s, too", <-told)
	}
}

// After a listing, other inits are no longer watched.
func TestListedInitsAreWatched(t *testing.T) {
	var i inits
	told := make(chan string, 10)
	stop := i.follow(func(name string, pid int64) { told <- name })
	defer stop()
	gone, stays := sleeper(t), sleeper(t)
	i.see("gone", int64(gone.Pid))
	i.seeAll(map[string]int64{"stays": int64(stays.Pid)})
	_ = gone.Kill()
	_ = stays.Kill()
	if name := <-told; name != "stays" {
		t.Errorf("told of %s", name)
	}
	if len(i.open.files) != 0 {
		t.Errorf("still watched: %v", i.open.files)
	}
}
