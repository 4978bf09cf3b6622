//go:build integration

package lxc_test

import (
	"context"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/lxc"
)

// monitorOf returns the process id of the monitor of a guest's init.
func monitorOf(t *testing.T, init int64) int {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.FormatInt(init, 10) + "/stat")
	must(t, err)
	monitor, err := strconv.Atoi(strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))[1])
	must(t, err)
	return monitor
}

// impatient returns a driver that does not wait long for monitors, and for a start
// as long as start says; 0 means the default.
func (w *world) impatient(start time.Duration) *lxc.Driver {
	return lxc.New(lxc.Options{
		Path: w.path, Namespace: "hostler", IDs: w.ids, Bridge: w.bridge, Images: w.cache,
		AnswerTimeout: 300 * time.Millisecond, StartTimeout: start, EndTimeout: time.Second,
	})
}

// The monitor carries out a request, and its answer never comes or the connection
// ends instead. The call may fail; repeated it succeeds. The guest keeps its
// process, the listing never shows it as stopped, and nothing is left.
func TestLostAnswers(t *testing.T) {
	w := newWorld(t)
	for command, number := range lxc.Commands {
		for how, cut := range map[string]bool{"silent": false, "cut": true} {
			t.Run(command+" "+how, func(t *testing.T) {
				m := w.machine(t, "lost")
				plain := w.d
				w.d = w.impatient(0)
				t.Cleanup(func() { w.d = plain })
				lost := 0
				// The answer to the first request of the command is lost.
				step := func(name string, call func(context.Context) error) {
					t.Helper()
					was := w.d.LoseAnswer(number, cut)
					if err := call(t.Context()); err != nil {
						t.Logf("%s: %v", name, err)
					}
					within(t, name+" does not succeed", func() bool { return call(t.Context()) == nil })
					if was() {
						lost++
					}
				}
				power := func(to containerbroker.Power, timeout time.Duration) func(context.Context) error {
					return func(ctx context.Context) error { return w.d.SetPower(ctx, m.Name, to, timeout) }
				}
				step("create", func(ctx context.Context) error { return w.d.Create(ctx, m, nil) })
				step("start", power(containerbroker.PowerStart, 0))
				pid := find(t, plain, m.Name).PID
				step("start again", power(containerbroker.PowerStart, 0))
				step("list", func(ctx context.Context) error {
					all, err := w.d.List(ctx, true)
					for _, i := range all {
						if i.Name == m.Name && i.Status != containerbroker.StatusRunning && i.Status != containerbroker.StatusUnknown {
							t.Errorf("the running guest is %s", i.Status)
						}
					}
					return err
				})
				m.CPUs = 2
				step("update", func(ctx context.Context) error {
					return w.d.Update(ctx, m, []containerbroker.Change{{Field: containerbroker.FieldCPUs}})
				})
				if now := find(t, plain, m.Name); now.PID != pid || now.Status != containerbroker.StatusRunning {
					t.Errorf("it was the process %d and is %d, %s", pid, now.PID, now.Status)
				}
				step("stop", power(containerbroker.PowerStop, 0))
				step("start after the stop", power(containerbroker.PowerStart, 0))
				step("graceful stop", power(containerbroker.PowerStop, time.Second))
				step("last start", power(containerbroker.PowerStart, 0))
				step("delete", func(ctx context.Context) error { return w.d.Delete(ctx, m.Name, m.Stamp) })
				if left := w.left(); len(left) > 0 {
					t.Errorf("left: %q", left)
				}
				t.Logf("%d answers were lost", lost)
				if lost == 0 {
					t.Error("no answer was lost")
				}
			})
		}
	}
}

// Each call that needs a suspended monitor ends within its time limit and changes
// nothing, and other guests are handled as before. When the monitor continues,
// the guest is as it was.
func TestSuspendedMonitor(t *testing.T) {
	w := newWorld(t)
	short := w.impatient(0)
	m, other := w.machine(t, "hangs"), w.machine(t, "well")
	pid := w.start(t, m)
	w.start(t, other)
	monitor := monitorOf(t, pid)
	suspend := func(signal syscall.Signal) { must(t, syscall.Kill(monitor, signal)) }
	t.Cleanup(func() { _ = syscall.Kill(monitor, syscall.SIGCONT) })
	power := func(to containerbroker.Power, timeout time.Duration) func(context.Context) error {
		return func(ctx context.Context) error { return short.SetPower(ctx, m.Name, to, timeout) }
	}
	fails := func(name string, call func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		began := time.Now()
		err := call(ctx)
		if err == nil || ctx.Err() != nil {
			t.Errorf("%s ended after %v with %v", name, time.Since(began).Round(time.Millisecond), err)
		}
		t.Logf("%s: %v", name, err)
	}
	m.CPUs = 2
	suspend(syscall.SIGSTOP)
	for _, i := range []struct {
		name string
		want containerbroker.Status
	}{{"hangs", containerbroker.StatusUnknown}, {"well", containerbroker.StatusRunning}} {
		if got := find(t, w.d, i.name).Status; got != i.want {
			t.Errorf("%s is %s", i.name, got)
		}
	}
	fails("start", power(containerbroker.PowerStart, 0))
	fails("update", func(ctx context.Context) error {
		return short.Update(ctx, m, []containerbroker.Change{{Field: containerbroker.FieldCPUs}})
	})
	fails("exec", func(ctx context.Context) error {
		_, err := short.Exec(ctx, m.Name, containerbroker.ExecRequest{Command: []string{"true"}})
		return err
	})
	fails("console", func(ctx context.Context) error {
		return short.Console(ctx, m.Name, struct {
			io.Reader
			io.Writer
		}{strings.NewReader(""), io.Discard})
	})
	w.says(t, other.Name, "echo on", "on")
	suspend(syscall.SIGCONT)
	within(t, "it does not answer again", func() bool { return find(t, w.d, m.Name).Status == containerbroker.StatusRunning })
	if now := find(t, w.d, m.Name).PID; now != pid {
		t.Errorf("it was the process %d and is %d", pid, now)
	}
	suspend(syscall.SIGSTOP)
	fails("graceful stop", power(containerbroker.PowerStop, time.Second))
	fails("stop", power(containerbroker.PowerStop, 0))
	fails("delete", func(ctx context.Context) error { return short.Delete(ctx, m.Name, m.Stamp) })
	if all, err := w.d.List(t.Context(), false); err != nil || !slices.ContainsFunc(all, func(i containerbroker.Instance) bool { return i.Name == m.Name }) {
		t.Errorf("it is gone: %v", err)
	}
	suspend(syscall.SIGCONT)
	must(t, w.d.Delete(t.Context(), m.Name, m.Stamp))
	must(t, w.d.Delete(t.Context(), other.Name, other.Stamp))
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A start that takes too long ends with an error, and the guest's start goes on. A
// later start finds the guest running.
func TestSlowStart(t *testing.T) {
	w := newWorld(t)
	short := w.impatient(2 * time.Second)
	m := w.machine(t, "slow")
	must(t, w.d.Create(t.Context(), m, nil))
	config, hook, goOn := w.path+"/slow/config", w.path+"/slow/hook", w.path+"/slow/go-on"
	text, err := os.ReadFile(config)
	must(t, err)
	must(t, os.WriteFile(hook, []byte("#!/bin/sh\nwhile [ ! -e "+goOn+" ]; do sleep 0.1; done\n"), 0o700))
	must(t, os.WriteFile(config, append(text, "lxc.hook.pre-start = "+hook+"\n"...), 0o600))
	t.Cleanup(func() { _ = os.WriteFile(goOn, nil, 0o600) })
	for _, call := range []struct {
		name string
		try  func(context.Context) error
	}{
		{"start", func(ctx context.Context) error { return short.SetPower(ctx, m.Name, containerbroker.PowerStart, 0) }},
		{"second start", func(ctx context.Context) error { return short.SetPower(ctx, m.Name, containerbroker.PowerStart, 0) }},
		{"delete", func(ctx context.Context) error { return short.Delete(ctx, m.Name, m.Stamp) }},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err := call.try(ctx)
		if err == nil || ctx.Err() != nil {
			t.Errorf("%s ended with %v", call.name, err)
		}
		cancel()
		t.Logf("%s: %v", call.name, err)
	}
	must(t, os.WriteFile(goOn, nil, 0o600))
	within(t, "it does not start", func() bool { return w.d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0) == nil })
	within(t, "it is not deleted", func() bool { return w.d.Delete(t.Context(), m.Name, m.Stamp) == nil })
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
