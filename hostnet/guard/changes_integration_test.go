//go:build integration

package guard

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/hostnet"
	"hostler/internal/fault"
)

func TestAGoodChangeIsKept(t *testing.T) {
	w := newFixture(t)
	must(t, w.guard.Run(t.Context(), Change{Object: "network/lan", Key: "1", Steps: w.bridging()}))
	w.bridged()
	if _, armed := w.guard.Armed(); armed {
		t.Error("the change is still armed")
	}
	if o := w.guard.outcomes()["network/lan"]; !o.Kept {
		t.Errorf("the outcome is %+v", o)
	}
	eventually(t, "the watchdog's end", 3*time.Second, func() bool { return w.watchdog() == 0 })
	w.bridged()
}

// Begin runs while the change is armed and before its first step. Its error ends
// the change, which may be tried again.
func TestBegin(t *testing.T) {
	w := newFixture(t)
	armed, early := false, true
	c := Change{Object: "network/up", Key: "u/1", Steps: w.bridging(), Begin: func(context.Context) error {
		_, armed = w.guard.Armed()
		early = stable(w.n) == w.before
		return fault.New(fault.Transient, "no bus")
	}}
	for range maxTries {
		wantKind(t, w.guard.Run(t.Context(), c), fault.Transient)
	}
	if !armed || !early {
		t.Errorf("armed %v, before the first step %v", armed, early)
	}
	w.restored()
	c.Begin = func(context.Context) error { return nil }
	must(t, w.guard.Run(t.Context(), c))
	w.bridged()
}

// Z15: a change is bad if a target answered before but not after it, however
// the change caused that. The host is restored within 10 s.
func TestABadChangeIsUndone(t *testing.T) {
	gateway := netip.MustParseAddr("192.0.2.1")
	everywhere := netip.MustParsePrefix("0.0.0.0/0")
	for name, c := range map[string]struct {
		steps  func(w *fixture) []hostnet.Step
		during func(w *fixture)
		after  func(w *fixture)
		why    string
	}{
		"wrong gateway": {
			steps: func(*fixture) []hostnet.Step {
				wrong := hostnet.Route{Destination: everywhere, Gateway: netip.MustParseAddr("192.0.2.77"), Metric: 100, Table: 254, Protocol: 3, Type: 1}
				right := wrong
				right.Gateway = gateway
				return []hostnet.Step{{Op: hostnet.AddRoute, Link: "eth0", Route: &wrong}, {Op: hostnet.DeleteRoute, Link: "eth0", Route: &right}}
			},
			why: "the default gateway 192.0.2.1 cannot be reached",
		},
		"the gateway's own address on the bridge": {
			steps: func(w *fixture) []hostnet.Step {
				return append(w.bridging(), hostnet.Step{Op: hostnet.AddAddress, Link: "br-up", Address: &hostnet.Address{Prefix: netip.MustParsePrefix("192.0.2.1/24")}})
			},
			why: "the default gateway 192.0.2.1 cannot be reached",
		},
		"peer unplugged": {
			steps:  (*fixture).bridging,
			during: func(w *fixture) { w.peer.IP("link set up0 down") },
			after: func(w *fixture) {
				w.peer.IP("link set up0 up")
				w.peer.IP("addr replace 2001:db8::1/64 dev up0 nodad")
			},
			why: "cannot be reached",
		},
		"bridge to nowhere": {
			steps: func(w *fixture) []hostnet.Step { return without(w.bridging(), hostnet.Enslave) },
			why:   "cannot be reached",
		},
		"a step that fails": {
			steps: func(w *fixture) []hostnet.Step {
				return append(w.bridging(), hostnet.Step{Op: hostnet.SetMTU, Link: "br-up", MTU: 1 << 30})
			},
			why: "cannot set the MTU",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			steps := c.steps(w)
			if c.during != nil {
				// Between the checkpoint and the last step.
				go func() {
					eventually(t, "the change", 10*time.Second, func() bool { _, armed := w.guard.Armed(); return armed })
					c.during(w)
				}()
			}
			err := w.guard.Run(t.Context(), Change{Object: "network/lan", Key: "1", Steps: steps})
			o := w.guard.outcomes()["network/lan"]
			if err == nil || !strings.Contains(err.Error(), c.why) || o.Kept || !strings.Contains(o.Reason, c.why) {
				t.Fatalf("the change came to %v, recorded as %+v", err, o)
			}
			if c.after != nil {
				c.after(w)
			}
			w.restored()
			took := time.Since(start(w))
			t.Logf("undone %v after it was armed", took.Round(time.Millisecond))
			if took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			if fault.Is(err, fault.NeedsOperator) {
				wantKind(t, w.guard.Run(t.Context(), Change{Object: "network/lan", Key: "1", Steps: steps}), fault.NeedsOperator)
			}
		})
	}
}

// start returns the time when the change was armed, from the watchdog's lock.
func start(w *fixture) time.Time {
	w.t.Helper()
	info, err := os.Stat(filepath.Join(w.dir, "lock", "watchdog"))
	must(w.t, err)
	return info.ModTime()
}

func TestConfirm(t *testing.T) {
	w := newFixture(t)
	change := Change{Object: "network/lan", Key: "1", Steps: w.bridging(), Confirm: time.Minute}
	_, err := w.guard.Confirm(t.Context())
	wantKind(t, err, fault.NotFound)
	_, err = w.guard.Revert(t.Context())
	wantKind(t, err, fault.NotFound)
	wantKind(t, w.guard.Run(t.Context(), change), fault.NotReady)
	w.bridged()
	wantKind(t, w.guard.Run(t.Context(), change), fault.NotReady)
	if a, armed := w.guard.Armed(); !armed || a.Phase != Confirming || !a.Watched || a.Left < 50*time.Second {
		t.Errorf("armed is %+v", a)
	}
	object, err := w.guard.Confirm(t.Context())
	must(t, err)
	if object != "network/lan" {
		t.Error(object)
	}
	w.bridged()
	eventually(t, "the watchdog's end", 3*time.Second, func() bool { return w.watchdog() == 0 })
	w.bridged()
}

func TestUnconfirmedIsUndone(t *testing.T) {
	w := newFixture(t)
	wantKind(t, w.guard.Run(t.Context(), Change{Object: "network/lan", Key: "1", Steps: w.bridging(), Confirm: 2 * time.Second}), fault.NotReady)
	w.bridged()
	eventually(t, "the undoing", 10*time.Second, func() bool { _, armed := w.guard.Armed(); return !armed })
	w.restored()
	if reason := w.guard.Refused("network/lan", "1"); !strings.Contains(reason, "it was not confirmed within 2s") {
		t.Errorf("the reason is %q", reason)
	}
}

func TestRevert(t *testing.T) {
	w := newFixture(t)
	wantKind(t, w.guard.Run(t.Context(), Change{Object: "network/lan", Key: "1", Steps: w.bridging(), Confirm: time.Minute}), fault.NotReady)
	_, err := w.guard.Revert(t.Context())
	must(t, err)
	w.restored()
}

// On a full disk a change is reverted, by the operator and at its deadline, and its
// outcome is recorded in the room of the checkpoint.
func TestRevertOnAFullDisk(t *testing.T) {
	for name, wait := range map[string]time.Duration{"by the operator": time.Minute, "at the deadline": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			must(t, os.Mkdir(w.dir, 0o700))
			must(t, unix.Mount("none", w.dir, "tmpfs", 0, "size=256k"))
			t.Cleanup(func() { _ = unix.Unmount(w.dir, unix.MNT_DETACH) })
			wantKind(t, w.guard.Run(t.Context(), Change{Object: "network/lan", Key: "1", Steps: w.bridging(), Confirm: wait}), fault.NotReady)
			err := os.WriteFile(filepath.Join(w.dir, "full"), make([]byte, 1<<20), 0o600)
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("the disk is not full: %v", err)
			}
			if name == "by the operator" {
				_, err := w.guard.Revert(t.Context())
				must(t, err)
			}
			eventually(t, "the undoing", 10*time.Second, func() bool { _, armed := w.guard.Armed(); return !armed })
			w.restored()
			if reason := w.guard.Refused("network/lan", "1"); reason == "" {
				t.Error("the outcome is not recorded")
			}
		})
	}
}

// If the watchdog dies while the change waits, it is restarted; if the restart
// fails, the change is undone.
func TestTheWatchdogDies(t *testing.T) {
	w := newFixture(t)
	go func() { _ = w.guard.Keep(t.Context()) }()
	wantKind(t, w.guard.Run(t.Context(), Change{Object: "network/lan", Key: "1", Steps: w.bridging(), Confirm: time.Minute}), fault.NotReady)
	first := w.killWatchdog(0)
	eventually(t, "another watchdog", 10*time.Second, func() bool {
		a, armed := w.guard.Armed()
		now := w.watchdog()
		return armed && a.Watched && now != 0 && now != first
	})
	w.bridged()
	w.dead = true
	w.killWatchdog(first)
	eventually(t, "the undoing", 10*time.Second, func() bool { _, armed := w.guard.Armed(); return !armed })
	w.restored()
}

// Without a watchdog there is no change.
func TestNoWatchdogNoChange(t *testing.T) {
	w := newFixture(t)
	w.dead = true
	wantKind(t, w.guard.Run(t.Context(), Change{Object: "network/lan", Key: "1", Steps: w.bridging()}), fault.Transient)
	w.restored()
}

// After a restart of the agent, a change being made is undone, a waiting change
// stays armed, and a change from before a reboot is forgotten.
func TestRecover(t *testing.T) {
	w := newFixture(t)
	steps := w.bridging()
	wantKind(t, w.guard.Run(t.Context(), Change{Object: "network/lan", Key: "1", Steps: steps, Confirm: time.Minute}), fault.NotReady)
	must(t, w.newGuard(0).Recover(t.Context()))
	w.bridged()
	rewrite(t, w, `"phase":"confirming"`, `"phase":"changing"`)
	must(t, w.newGuard(0).Recover(t.Context()))
	w.restored()
	if o := w.guard.outcomes()["network/lan"]; o.Tries != 1 || o.Final {
		t.Errorf("the outcome is %+v", o)
	}

	wantKind(t, w.guard.Run(t.Context(), Change{Object: "network/lan", Key: "1", Steps: steps, Confirm: time.Minute}), fault.NotReady)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	must(t, err)
	rewrite(t, w, strings.TrimSpace(string(boot)), "another-run")
	again := w.newGuard(0)
	must(t, again.Recover(t.Context()))
	select {
	case <-again.Ends():
	default:
		t.Error("its end is not reported")
	}
	if _, armed := w.guard.Armed(); armed {
		t.Error("it is still armed")
	}
	if reason := w.guard.Refused("network/lan", "1"); !strings.Contains(reason, "the host was restarted") {
		t.Errorf("the reason is %q", reason)
	}
}

func rewrite(t *testing.T, w *fixture, from, to string) {
	t.Helper()
	path := filepath.Join(w.dir, "checkpoint.json")
	text, err := os.ReadFile(path)
	must(t, err)
	if !strings.Contains(string(text), from) {
		t.Fatalf("no %s in %s", from, text)
	}
	must(t, os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o600))
}
