// Package behaviour is the suite of a user's view of machines. Every container
// type passes it with the real daemon, the real command and its real hypervisor.
package behaviour

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// patience limits the waits for actions that the agent takes by itself.
const patience = 2 * time.Minute

// World is a private hypervisor of one type, as someone sees it who looks past
// hostler, and an agent that finds it behind a proxy.
type World interface {
	// Type is the container type, as a declaration names it.
	Type() string
	// Agent is the agent, which is not started; Configure adds to its
	// configuration.
	Agent() *harness.Agent
	Configure(more string)
	// Image and Another are images as a declaration names them; Later is one
	// that cannot be had before Supply.
	Image() string
	Another() string
	Later() string
	Supply()
	// Greeting is a text that the guests of these images print on their consoles.
	Greeting() string
	// Live is a change that a running instance takes, Restart one that it
	// takes when it starts; the second follows the first.
	Live() Change
	Restart() Change

	// PID is the hypervisor's process.
	PID() int
	// Names are those of all instances.
	Names() []string
	// Look fails the test where there is no instance of that name.
	Look(name string) Instance
	// Make makes an instance, stamped with a namespace or, where that is "",
	// with nothing.
	Make(name, namespace string, run bool)
	// Left lists the remains of machines besides instances, e.g. volumes.
	Left() []string

	// Break has every listing go wrong until Heal, Hang has none answered;
	// Faults are the kinds.
	Faults() []string
	Break(fault string)
	Hang()
	Heal()
	// Forget has Listings and Mutations count from 0.
	Forget()
	Listings() int
	Mutations() int
}

// Change is a part of a machine's declaration before and after a change.
type Change struct {
	From, To string
	// Made says why an instance is not as it is after the change.
	Made func(name string) error
}

// Instance is the hypervisor's view of an instance.
type Instance struct {
	// Process is the guest's, 0 where it does not run.
	Process int
	// Making is another one for each time that the instance was made.
	Making string
	// UID is that of its stamp, "" where it has none.
	UID string
	// Told is the data that a guest reads at its first start.
	Told string
	// Definition is everything that another tool could have changed.
	Definition string
}

// Sample names the behaviours that show a type's own ways best in little time.
var Sample = []string{"P4 P22 P23 P24 Z1 Z3 harvest", "Z6 Z7 killed while making", "a guest that dies"}

// behaviours are all, by name.
var behaviours = []struct {
	name string
	try  func(*testing.T, World)
}{
	{"a plan, its apply, and an empty second plan", planned},
	{"changes with and without a restart", changed},
	{"P28 running and retain", kept},
	{"P4 P22 P23 P24 Z1 Z3 harvest", harvested},
	{"P20 P21 I15 I16 bad listings change nothing", misled},
	{hanging, impatient},
	{"documents are one whole", documents},
	{"adopt and release", adopted},
	{"an error, others, and the retry", retried},
	{"exec, events and exit codes", reached},
	{"Z6 Z7 killed while making", killed},
	{"a guest that dies", revived},
	{"the provisioner in a process of its own", apart},
	{"Z29 files and secrets", secret},
}

const hanging = "status and doctor while the hypervisor hangs"

// Daemonless names the behaviours of a type whose hypervisor is no daemon that
// could hang.
func Daemonless() (names []string) {
	for _, b := range behaviours {
		if b.name != hanging {
			names = append(names, b.name)
		}
	}
	return names
}

// Run tries a type, or only the named behaviours of it. open makes a new world,
// which lives as long as its test.
func Run(t *testing.T, open func(*testing.T) World, only ...string) {
	left := slices.Clone(only)
	for _, b := range behaviours {
		left = slices.DeleteFunc(left, func(name string) bool { return name == b.name })
		if len(only) == 0 || slices.Contains(only, b.name) {
			t.Run(b.name, func(t *testing.T) {
				t.Parallel() // each has a hypervisor and an agent of its own, and waits much
				b.try(t, open(t))
			})
		}
	}
	if len(left) > 0 {
		t.Errorf("there are no behaviours with these names: %q", left)
	}
}

// begin starts the agent of a world.
func begin(w World) *harness.Agent {
	a := w.Agent()
	a.Start()
	return a
}

// machine is a line of a declaration; more goes on after the image, with ", "
// before each key.
func machine(w World, name, image, more string) string {
	return fmt.Sprintf("  %s: {type: %s, image: %q%s}\n", name, w.Type(), image, more)
}

// plain are machines of the first image.
func plain(w World, names ...string) (lines []string) {
	for _, name := range names {
		lines = append(lines, machine(w, name, w.Image(), ""))
	}
	return lines
}

// declaration is a document of machines.
func declaration(lines ...string) string {
	return "version: 1\nmachines:\n" + strings.Join(lines, "")
}

// refused runs a command that must fail with all of these words in its output.
func refused(t *testing.T, a *harness.Agent, args []string, words ...string) {
	t.Helper()
	code, out := a.Exit(args...)
	if code == 0 {
		t.Errorf("%v works:\n%s", args, out)
	}
	for _, word := range words {
		if !strings.Contains(out, word) {
			t.Errorf("%v does not say %q:\n%s", args, word, out)
		}
	}
}

// empty fails the test unless a declaration plans nothing.
func empty(t *testing.T, a *harness.Agent, file string) {
	t.Helper()
	if code, out := a.Exit("plan", "-f", file); code != 0 || !strings.Contains(out, "no changes") {
		t.Errorf("plan exited with %d:\n%s", code, out)
	}
}

// status waits until a machine has a status.
func status(t *testing.T, a *harness.Agent, name, want string) {
	t.Helper()
	harness.Wait(t, name+" to be "+want, patience, func() error {
		if row := a.Machines()[name]; row.Status != want {
			return fmt.Errorf("%+v", row)
		}
		return nil
	})
}

// made waits until an instance is as it is to be after a change: a guest gives
// memory back in its own time.
func made(t *testing.T, c Change, name string) {
	t.Helper()
	harness.Wait(t, name+" to be changed", patience, func() error { return c.Made(name) })
}

// there fails the test unless the instances are there.
func there(t *testing.T, w World, names ...string) {
	t.Helper()
	all := w.Names()
	for _, name := range names {
		if !slices.Contains(all, name) {
			t.Errorf("%s is gone; there are %v", name, all)
		}
	}
}

// gone waits until no instance has one of the names.
func gone(t *testing.T, w World, names ...string) {
	t.Helper()
	harness.Wait(t, strings.Join(names, ", ")+" to go", patience, func() error {
		all := w.Names()
		for _, name := range names {
			if slices.Contains(all, name) {
				return fmt.Errorf("%s is there", name)
			}
		}
		return nil
	})
}

// nothing fails the test if something is left.
func nothing(t *testing.T, w World) {
	t.Helper()
	if names, left := w.Names(), w.Left(); len(names)+len(left) > 0 {
		t.Errorf("left: instances %v, and %v", names, left)
	}
}

// same fails the test unless a guest is the one that it was.
func same(t *testing.T, w World, name string, was Instance) {
	t.Helper()
	if now := w.Look(name); now.Process != was.Process || now.Process == 0 {
		t.Errorf("%s runs as process %d, ran as %d", name, now.Process, was.Process)
	}
}
