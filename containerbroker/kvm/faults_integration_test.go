//go:build integration

package kvm_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/kvm"
	"hostler/containerbroker/kvm/kvmtest"
	"hostler/internal/fault"
)

func (r *rig) machine(d *kvm.Driver, name string) containerbroker.Machine {
	r.t.Helper()
	id, err := d.EnsureImage(r.t.Context(), r.image, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return containerbroker.Machine{
		Name: name, ImageID: id, Properties: containerbroker.Properties{CPUs: 1, Memory: 512 << 20},
		Stamp: containerbroker.Stamp{Namespace: "hostler", UID: "uid-" + name, Token: "token", Record: `{"secret": "hunter2"}`},
	}
}

func (r *rig) made(d *kvm.Driver, name string) containerbroker.Machine {
	r.t.Helper()
	m := r.machine(d, name)
	must(r.t, d.Create(r.t.Context(), m, nil))
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, d *kvm.Driver, name string) containerbroker.Instance {
	t.Helper()
	all, err := d.List(t.Context(), true)
	must(t, err)
	for _, i := range all {
		if i.Name == name {
			return i
		}
	}
	t.Fatalf("%s is not listed", name)
	return containerbroker.Instance{}
}

// A libvirt that hangs, dies, restarts or sends garbage causes an error within
// the deadline and nothing else: guests keep their processes, nothing is made
// twice, and the next call works.
func TestLibvirtFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := r.options("hostler")
	o.RequestTimeout, o.StartTimeout = 3*time.Second, 6*time.Second
	d := kvm.New(o)
	m := r.made(d, "steady")
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	pid := get(t, d, m.Name).PID
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })

	// F6, F7: every kind of fault in the answer to every call that changes
	// something, and to a listing.
	for _, broken := range []kvmtest.Fault{kvmtest.Lose, kvmtest.Truncate, kvmtest.Oversize, kvmtest.Undersize, kvmtest.Garbage, kvmtest.Hang} {
		t.Run(string(broken), func(t *testing.T) {
			r.proxy.Add(kvmtest.ProcAllStats, broken)
			began := time.Now()
			if all, err := d.List(t.Context(), true); err == nil || len(all) != 0 {
				t.Errorf("a broken listing gave %d instances, %v", len(all), err)
			}
			if took := time.Since(began); took > 2*o.RequestTimeout+time.Second {
				t.Errorf("it took %s", took)
			}
			one := r.machine(d, "broken")
			for _, proc := range []uint32{kvmtest.ProcDefine, kvmtest.ProcVolumeCreate, kvmtest.ProcSetMetadata} {
				r.proxy.Add(proc, broken)
				for try := 0; ; try++ {
					err := d.Create(t.Context(), one, nil)
					if err == nil {
						break
					}
					if containerbroker.IsNotMade(err) {
						t.Errorf("the outcome of call %d is not known: %v", proc, err)
					}
					if try == 3 {
						t.Fatal(err)
					}
				}
			}
			if n := count(r.server.Names(), one.Name); n != 1 {
				t.Errorf("%d domains", n)
			}
			r.proxy.Add(kvmtest.ProcUndefineFlags, broken)
			for try := 0; d.Delete(t.Context(), one.Name, one.Stamp) != nil; try++ {
				if try == 3 {
					t.Fatal("it cannot be deleted")
				}
			}
			for _, file := range r.server.Files() {
				if strings.HasPrefix(file, "hostler-"+one.Name) {
					t.Errorf("%s is left", file)
				}
			}
			if now := get(t, d, m.Name); now.PID != pid {
				t.Errorf("another process: %d, was %d", now.PID, pid)
			}
		})
	}

	t.Run("F4 frozen", func(t *testing.T) {
		r.server.Freeze()
		began := time.Now()
		_, err := d.List(t.Context(), false)
		r.server.Thaw()
		if took := time.Since(began); err == nil || took > o.RequestTimeout+2*time.Second {
			t.Errorf("%v after %s", err, took)
		}
		if now := get(t, d, m.Name); now.PID != pid {
			t.Errorf("another process: %d, was %d", now.PID, pid)
		}
	})
	for what, end := range map[string]func(){"F4 killed": r.server.Kill, "F4 restarted": r.server.Stop} {
		t.Run(what, func(t *testing.T) {
			events, err := d.Events(t.Context())
			must(t, err)
			end()
			select {
			case _, open := <-events:
				for open {
					_, open = <-events
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the event stream goes on without libvirt")
			}
			if _, err := d.List(t.Context(), false); fault.KindOf(err) != fault.Transient {
				t.Errorf("without libvirt: %v", err)
			}
			r.server.Run()
			if now := get(t, d, m.Name); now.PID != pid || now.Status != containerbroker.StatusRunning {
				t.Errorf("it is %s in process %d, was %d", now.Status, now.PID, pid)
			}
		})
	}
	t.Run("K3 a guest that cannot answer is reported at once", func(t *testing.T) {
		r.addForeign(t, "mute")
		r.server.Virsh("start", "mute")
		t.Cleanup(func() { r.server.Virsh("destroy", "mute") })
		r.server.Virsh("suspend", m.Name)
		for name, says := range map[string]string{"mute": "no channel for a guest agent", m.Name: "hostler start steady"} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			_, err := d.Exec(ctx, name, containerbroker.ExecRequest{Command: []string{"true"}})
			cancel()
			if !fault.Is(err, fault.NotReady) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		r.server.Virsh("resume", m.Name)
	})
	t.Run("L11 a guest whose QEMU hangs is forced", func(t *testing.T) {
		must(t, syscall.Kill(int(pid), syscall.SIGSTOP))
		must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStop, 5*time.Second))
		if now := get(t, d, m.Name); now.Status != containerbroker.StatusStopped {
			t.Errorf("it is %s", now.Status)
		}
	})
}

func count(names []string, name string) (n int) {
	for _, one := range names {
		if one == name {
			n++
		}
	}
	return n
}

// The serial console shows the guest's output and takes input.
func TestConsole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.broker("hostler")
	m := r.made(d, "talk")
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	if _, err := d.WaitReady(t.Context(), m, nil); err != nil {
		t.Fatal(err)
	}
	in, typing := io.Pipe()
	heard, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- d.Console(t.Context(), m.Name, struct {
			io.Reader
			io.Writer
		}{in, out})
		_ = out.Close()
	}()
	go func() { _, _ = typing.Write([]byte("echo heard-$((6*7))\n")) }()
	text := make(chan string, 1)
	go func() {
		var all strings.Builder
		buffer := make([]byte, 1024)
		for !strings.Contains(all.String(), "heard-42") {
			n, err := heard.Read(buffer)
			all.Write(buffer[:n])
			if err != nil {
				break
			}
		}
		text <- all.String()
	}()
	select {
	case all := <-text:
		if !strings.Contains(all, "heard-42") {
			t.Errorf("the console said %q", all)
		}
	case <-time.After(30 * time.Second):
		t.Error("the console says nothing")
	}
	go func() { _, _ = io.Copy(io.Discard, heard) }()
	_ = typing.Close()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the console does not end when the person leaves")
	}
	log, err := d.Log(t.Context(), m.Name)
	must(t, err)
	defer func() { _ = log.Close() }()
	data, err := io.ReadAll(log)
	if err != nil || !strings.Contains(string(data), "TINY-READY talk") {
		t.Errorf("the log holds %d bytes, %v", len(data), err)
	}
}
