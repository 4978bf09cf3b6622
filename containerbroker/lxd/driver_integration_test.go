//go:build integration

package lxd_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/lxd"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/fault"
	"hostler/storage/idmap"
)

func machine(name, image, token string) containerbroker.Machine {
	return containerbroker.Machine{
		Name: name, ImageID: image, ExpectAddress: true,
		Stamp: containerbroker.Stamp{Namespace: "hostler", UID: "uid-" + name, Token: token, Record: "{}"},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, server *lxdtest.Server, name string) api.InstanceFull {
	t.Helper()
	var found api.InstanceFull
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := server.API(http.MethodGet, "/1.0/instances/"+name+"?recursion=1", nil, &found)
		if err == nil {
			return found
		}
		// So Incus answers until it has noticed that the init ended.
		if !strings.HasPrefix(err.Error(), "Invalid PID") || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// F7: after any lost reply there is exactly one instance, and none after the
// deletion.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	server := lxdtest.Start(t)
	proxy := lxdtest.NewProxy(t, server.Socket)
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: proxy.Socket, Namespace: "hostler"})
	again := func(what string, call func() error) {
		t.Helper()
		var err error
		for range 3 {
			if err = call(); err == nil {
				return
			}
		}
		t.Fatalf("%s: %v", what, err)
	}
	for i := range 5 {
		m := machine(fmt.Sprint("lost-", i), server.TinyFingerprint, "token")
		lose := func(method, path string) {
			proxy.Heal()
			proxy.Add(lxdtest.Rule{Method: method, Path: path, Fault: lxdtest.LoseReply})
		}
		proxy.Forget()
		lose(http.MethodPost, "/1.0/instances")
		again("create", func() error { return d.Create(t.Context(), m, nil) })
		if n := proxy.Count(http.MethodPost, "/1.0/instances"); n != 1 {
			t.Errorf("%d creates were sent", n)
		}
		lose(http.MethodPut, "/state")
		again("start", func() error { return d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0) })
		if found := get(t, server, m.Name); found.StatusCode != api.Running {
			t.Errorf("after the start it is %s", found.Status)
		}
		lose(http.MethodDelete, "/1.0/instances/")
		again("delete", func() error { return d.Delete(t.Context(), m.Name, m.Stamp) })
		if names := server.Names(); len(names) != 0 {
			t.Fatalf("left: %v", names)
		}
	}
}

// Every operation uses as few requests as possible.
func TestRequestsAreFew(t *testing.T) {
	t.Parallel()
	server := lxdtest.Start(t)
	proxy := lxdtest.NewProxy(t, server.Socket)
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: proxy.Socket, Namespace: "hostler", Profile: "hostler"})
	m := machine("few", server.TinyFingerprint, "token")
	for _, step := range []struct {
		name string
		most int
		call func() error
	}{
		{"create", 3, func() error { return d.Create(t.Context(), m, nil) }},
		{"start", 3, func() error { return d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0) }},
		{"ready", 8, func() error { _, err := d.WaitReady(t.Context(), m, nil); return err }},
		{"list", 1, func() error { _, err := d.List(t.Context(), true); return err }},
		{"update nothing", 1, func() error { return d.Update(t.Context(), m, nil) }},
		{"delete", 5, func() error { return d.Delete(t.Context(), m.Name, m.Stamp) }},
	} {
		proxy.Forget()
		must(t, step.call())
		if n := proxy.Count("", "/"); n > step.most {
			t.Errorf("%s took %d requests, want at most %d: %v", step.name, n, step.most, proxy.Counts())
		}
	}
}

// An instance whose creation died with LXD is removed and made again, and never
// started.
func TestKilledWhileCreating(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"btrfs", "dir"} {
		t.Run(driver, func(t *testing.T) {
			server := lxdtest.StartWith(t, lxdtest.Options{Driver: driver})
			d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler", RetryDelay: 100 * time.Millisecond})
			ballast := make([]byte, 60<<20)
			_, _ = rand.Read(ballast)
			image := server.Import("large", lxdtest.TinyInit+"exit\n"+hex.EncodeToString(ballast)+"\n")
			m := machine("cut", image, "one")
			done := make(chan error, 1)
			go func() { done <- d.Create(t.Context(), m, nil) }()
			for len(server.Names()) == 0 { // its record appears before its files
				select {
				case err := <-done:
					t.Fatalf("the create was over too soon: %v", err)
				default:
				}
			}
			server.Kill()
			if err := <-done; err == nil {
				t.Fatal("the create ended well though LXD was killed")
			}
			server.Run()
			if _, err := d.List(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			err := d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0)
			if fault.KindOf(err) != fault.Transient || !strings.Contains(err.Error(), "created again") {
				t.Errorf("starting it: %v", err)
			}
			if err := d.Create(t.Context(), m, nil); fault.KindOf(err) != fault.Transient {
				t.Errorf("asking for it again: %v", err)
			}
			if names := server.Names(); len(names) != 0 {
				t.Errorf("left: %v", names)
			}
			m.Stamp.Token = "two"
			must(t, d.Create(t.Context(), m, nil))
			must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
			_, err = d.WaitReady(t.Context(), m, nil)
			must(t, err)
			must(t, d.Delete(t.Context(), m.Name, m.Stamp))
		})
	}
}

// I1: killing and restarting LXD changes no guest, and the driver continues.
func TestLXDRestarts(t *testing.T) {
	t.Parallel()
	server := lxdtest.Start(t)
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler"})
	m := machine("steady", server.TinyFingerprint, "token")
	must(t, d.Create(t.Context(), m, nil))
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	pid := get(t, server, m.Name).State.Pid
	events, err := d.Events(t.Context())
	must(t, err)
	server.Kill()
	for range events { // it ends with LXD
	}
	if _, err := d.List(t.Context(), true); fault.KindOf(err) != fault.Transient {
		t.Errorf("listing without LXD: %v", err)
	}
	server.Run()
	if now := get(t, server, m.Name).State.Pid; now != pid {
		t.Errorf("process 1 was %d and is %d", pid, now)
	}
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
}

func TestFrozenInstances(t *testing.T) {
	t.Parallel()
	server := lxdtest.StartWith(t, lxdtest.Options{Driver: "dir"})
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler"})
	m := machine("cold", server.TinyFingerprint, "token")
	must(t, d.Create(t.Context(), m, nil))
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	freeze := func() {
		t.Helper()
		must(t, server.API(http.MethodPut, "/1.0/instances/cold/state", api.InstanceStatePut{Action: "freeze"}, nil))
	}
	freeze()
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	if found := get(t, server, m.Name); found.StatusCode != api.Running {
		t.Errorf("started, it is %s", found.Status)
	}
	freeze()
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStop, time.Second))
	if found := get(t, server, m.Name); found.StatusCode != api.Stopped {
		t.Errorf("stopped, it is %s", found.Status)
	}
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	freeze()
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
}

// Z5, W12: the administrator's keys and devices stay, hostler's follow the
// declaration; a new record does not make cloud-init run again.
func TestUpdateTouchesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	server := lxdtest.Start(t)
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler"})
	m := machine("mine", server.TinyFingerprint, "token")
	m.Pool, m.RootDisk = server.Pool, 2<<30
	must(t, d.Create(t.Context(), m, nil))
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	before := get(t, server, m.Name)
	put := before.Writable()
	put.Config = maps.Clone(put.Config)
	recorded, err := d.GuestIDs(t.Context())
	must(t, err)
	ids, err := idmap.Recorded(recorded)
	must(t, err)
	if want, err := idmap.Of("/etc/subuid", "/etc/subgid", "root", idmap.Map{}); err != nil || ids != want {
		t.Errorf("its ids are recorded as %v in %s, want %v, %v", ids, recorded, want, err)
	}
	put.Config["user.person"] = "theirs"
	put.Config["limits.processes"] = "100"
	put.Devices["extra"] = map[string]string{"type": "none"}
	must(t, server.API(http.MethodPut, "/1.0/instances/mine", put, nil))

	list := func() containerbroker.Instance {
		t.Helper()
		all, err := d.List(t.Context(), true)
		must(t, err)
		return all[slices.IndexFunc(all, func(i containerbroker.Instance) bool { return i.Name == m.Name })]
	}
	if changes := d.Diff(m, list()); len(changes) != 0 {
		t.Errorf("a person's own keys are a difference: %+v", changes)
	}
	m.Stamp.Record, m.Memory = `{"new": true}`, 200<<20
	m.RootDisk = 1 << 30 // a btrfs quota shrinks live
	must(t, d.Update(t.Context(), m, d.Diff(m, list())))
	after := get(t, server, m.Name)
	if after.Config["user.person"] != "theirs" || after.Config["limits.processes"] != "100" || after.Devices["extra"] == nil {
		t.Errorf("a person's keys are gone: %v %v", after.Config, after.Devices)
	}
	if after.Config["limits.memory"] != fmt.Sprint(200<<20) || after.Devices["root"]["size"] != fmt.Sprint(1<<30) {
		t.Errorf("ours did not follow: %v %v", after.Config, after.Devices)
	}
	const id = "volatile.cloud-init.instance-id"
	if before.Config[id] == "" || before.Config[id] != after.Config[id] {
		t.Errorf("cloud-init's instance id was %q and is %q", before.Config[id], after.Config[id])
	}
	if after.State.Pid != before.State.Pid {
		t.Error("it was restarted")
	}
	if changes := d.Diff(m, list()); len(changes) != 0 {
		t.Errorf("second plan: %+v", changes)
	}
	// LXD changes the instance-id for a new interface and for other user-data.
	// hostler restores the id, even if it was interrupted, before the guest
	// starts.
	m.NICs = []containerbroker.NIC{{Name: "lan0", Bridge: brokertest.Bridge(t), MAC: "00:16:3e:bb:00:07"}}
	m.Guest.UserData = "#!/bin/sh\n"
	changes := slices.DeleteFunc(d.Diff(m, list()), func(c containerbroker.Change) bool { return c.Impact == containerbroker.ImpactRecreate })
	must(t, d.Update(t.Context(), m, changes))
	if renewed := get(t, server, m.Name); renewed.Config[id] != before.Config[id] || renewed.Config["cloud-init.network-config"] == "" {
		t.Errorf("with another interface: %v", renewed.Config)
	}
	half := get(t, server, m.Name)
	put = half.Writable()
	put.Config["user.hostler.instance-id"] = before.Config[id]
	put.Config["cloud-init.network-config"] = "#" + put.Config["cloud-init.network-config"]
	must(t, server.API(http.MethodPut, "/1.0/instances/mine", put, nil))
	if cut := get(t, server, m.Name); cut.Config[id] == before.Config[id] {
		t.Error("LXD did not renew the instance-id")
	}
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerRestart, 0))
	if found := get(t, server, m.Name); found.Config[id] != before.Config[id] || found.Config["user.hostler.instance-id"] != "" {
		t.Errorf("started again: %v", found.Config)
	}
	m.RerunFirstBoot = true
	must(t, d.Update(t.Context(), m, d.Diff(m, list())))
	if found := get(t, server, m.Name); found.Config[id] == before.Config[id] {
		t.Error("the first boot that is to run again would not")
	}
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
}

// F8: a stream that is cut or frozen ends.
func TestEventStreamEnds(t *testing.T) {
	t.Parallel()
	server := lxdtest.StartWith(t, lxdtest.Options{Driver: "dir", NoImage: true})
	proxy := lxdtest.NewProxy(t, server.Socket)
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: proxy.Socket, EventTimeout: time.Second})
	for what, stop := range map[string]func(){"cut": proxy.CutStreams, "frozen": server.Freeze} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		events, err := d.Events(ctx)
		must(t, err)
		stop()
		for range events { // it ends
		}
		if ctx.Err() != nil {
			t.Errorf("a stream that was %s went on", what)
		}
		cancel()
		server.Thaw()
	}
	if n := proxy.Count("", "/"); n != 2 {
		t.Errorf("%d requests: %v", n, proxy.Counts())
	}
}
