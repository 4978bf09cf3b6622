package lxd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/containerbroker/guestprobe"
	"hostler/internal/fault"
)

func TestLimitsAreRead(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "0": 0, "1024": 1024, "512MiB": 512 << 20, "1GiB": 1 << 30, "2GB": 2e9, "4kB": 4000, "7B": 7, "16EiB": -1,
		"50%": -1, "-1": -1, "MiB": -1, "1 GiB": 1 << 30, "9223372036854775807": 1<<63 - 1, "9223372036854775808": -1, "1.5GiB": -1,
	} {
		if got := bytesOf(text); got != want {
			t.Errorf("bytes of %q: %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]int{
		"": 0, "1": 1, "16": 16, "0-3": 4, "1,3": 2, "0-1,4": 3, "3-1": -1, "x": -1, "1-": -1, "-1": -1, "0": 1, "99999-100000": -1,
	} {
		if got := cpusOf(text); got != want {
			t.Errorf("processors of %q: %d, want %d", text, got, want)
		}
	}
}

// The listing reports kinds and limits of the instance itself that no
// declaration can express; limits from a profile are ignored.
func TestUndeclarableInstancesAreReported(t *testing.T) {
	for says, c := range map[string]struct {
		own, given map[string]string
		root, kind string
	}{
		"":                        {own: map[string]string{keyCPUs: "0-1,3", keyMemory: "512MB"}, given: map[string]string{keyMemory: "50%"}, root: "4GiB"},
		"limits.memory is 50%":    {own: map[string]string{keyMemory: "50%"}},
		"limits.cpu is many":      {own: map[string]string{keyCPUs: "many"}},
		"root disk is 10%":        {root: "10%"},
		"it is a virtual machine": {kind: "virtual-machine"},
		"it is an application container of an OCI image": {kind: "container", own: map[string]string{"volatile.container.oci": "true"}},
	} {
		i := api.InstanceFull{Instance: api.Instance{Name: "web", Type: c.kind, Config: c.own, ExpandedConfig: c.given, Devices: devices{
			"root": {"type": "disk", "path": "/", "pool": "default", "size": c.root},
		}}}
		if odd := instanceOf(i).Odd; !strings.Contains(odd, says) || (odd == "") != (says == "") {
			t.Errorf("%q is told, not %q", odd, says)
		}
	}
}

func TestStatusCodes(t *testing.T) {
	for code, want := range map[api.StatusCode]containerbroker.Status{
		api.Running: "running", api.Stopped: "stopped", api.Frozen: "frozen", api.Error: "error",
		api.Starting: "busy", api.Stopping: "busy", api.Freezing: "busy", 0: "unknown", 999: "unknown", -1: "unknown",
	} {
		if got := statusOf(code); got != want {
			t.Errorf("%d: %s, want %s", code, got, want)
		}
	}
}

// Values from profiles are shown but are no difference to the declaration.
func TestProfilesAreNoDrift(t *testing.T) {
	i := api.InstanceFull{Instance: stamped(api.Running)}
	i.ExpandedConfig = map[string]string{keyCPUs: "4", keyMemory: "1GiB"}
	i.ExpandedDevices = map[string]map[string]string{"root": {"type": "disk", "path": "/", "pool": "default", "size": "10GiB"}}
	got := instanceOf(i)
	if got.CPUs != 4 || got.Memory != 1<<30 || got.RootDisk != 10<<30 {
		t.Errorf("shown as %+v", got)
	}
	m := testMachine()
	m.Pool = "default"
	if changes := New(Options{}).Diff(m, got); len(changes) != 0 {
		t.Errorf("changes: %+v", changes)
	}
	m.Memory, m.Pool = 1<<30, "other"
	changes := New(Options{}).Diff(m, got)
	if len(changes) != 2 || changes[0].Field != "memory" || changes[1].Impact != containerbroker.ImpactRecreate {
		t.Errorf("changes: %+v", changes)
	}
}

// I14: user-data and record are never shown.
func TestDiffShowsNoSecrets(t *testing.T) {
	m := testMachine()
	m.Guest.UserData, m.Stamp.Record = "#!/bin/sh\necho hunter2\n", "hunter2"
	changes := New(Options{}).Diff(m, instanceOf(api.InstanceFull{Instance: stamped(api.Running)}))
	text, err := json.Marshal(changes)
	if err != nil || len(changes) != 2 || strings.Contains(string(text), "hunter2") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestHalfMadeInstances(t *testing.T) {
	whole := stamped(api.Stopped)
	if halfMade(whole) {
		t.Error("a new instance counts as half-made")
	}
	delete(whole.Config, "volatile.apply_template")
	if !halfMade(whole) {
		t.Error("an interrupted one does not")
	}
	whole.Config["volatile.last_state.power"] = "STOPPED"
	if halfMade(whole) {
		t.Error("one that once ran does")
	}
}

func TestReports(t *testing.T) {
	for name, c := range map[string]struct {
		report string
		ready  containerbroker.Readiness
		kind   fault.Kind
		says   string
	}{
		"tiny":       {"init init\naddress found\n", containerbroker.Readiness{Init: "init"}, "", ""},
		"systemd":    {"init systemd\nsystem degraded\ncloud-init done\nresult\n{\"v1\": {\"errors\": []}}", containerbroker.Readiness{Init: "systemd", CloudInit: "done"}, "", ""},
		"disabled":   {"init systemd\nsystem running\ncloud-init disabled\naddress found\n", containerbroker.Readiness{Init: "systemd", CloudInit: "disabled"}, "", ""},
		"failed":     {"init systemd\ncloud-init done\nresult\n{\"v1\": {\"errors\": [\"no such\\nmodule\", \"bang\"]}}", containerbroker.Readiness{Init: "systemd", CloudInit: "error: no such; module; bang"}, fault.NeedsOperator, "no such; module; bang"},
		"status":     {"init systemd\ncloud-init error\n", containerbroker.Readiness{Init: "systemd", CloudInit: "error"}, fault.NeedsOperator, "cloud-init failed"},
		"no address": {"init init\naddress missing\n", containerbroker.Readiness{Init: "init"}, fault.Transient, "no address"},
		"rescue":     {"init systemd\nsystem maintenance\n", containerbroker.Readiness{Init: "systemd"}, fault.Transient, "maintenance"},
		"nothing":    {"", containerbroker.Readiness{}, "", ""},
		"hostile":    {"init \x1b[2Jx\ncloud-init done\nresult\n{{{", containerbroker.Readiness{Init: "[2Jx", CloudInit: "done"}, "", ""},
	} {
		got := guestprobe.Report(c.report)
		if got.Init != c.ready.Init || got.CloudInit != c.ready.CloudInit {
			t.Errorf("%s: read as %+v", name, got)
		}
		err := guestprobe.Judge(containerbroker.Machine{ExpectAddress: true}, c.report, got, time.Minute)
		if fault.KindOf(err) != c.kind || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzInstance(f *testing.F) {
	f.Add([]byte(`{"name": "web", "status_code": 103, "config": {"limits.cpu": "0-3", "limits.memory": "50%", "user.hostler.namespace": "n"},
		"expanded_devices": {"root": {"type": "disk", "path": "/", "size": "1GiB"}}, "state": {"pid": -1, "network": {"eth0": {"addresses": [{"address": "fe80::1%eth0", "scope": "global"}, {"address": "10.0.0.1", "scope": "global"}]}}}}`))
	f.Add([]byte(`{"status_code": -1, "devices": {"x": null}, "state": {"network": null}}`))
	known := []containerbroker.Status{
		containerbroker.StatusRunning, containerbroker.StatusStopped, containerbroker.StatusFrozen,
		containerbroker.StatusBusy, containerbroker.StatusError, containerbroker.StatusUnknown,
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var found api.InstanceFull
		if json.Unmarshal(data, &found) != nil {
			return
		}
		i := instanceOf(found)
		if !slices.Contains(known, i.Status) || i.CPUs < 0 || i.Memory < 0 || i.RootDisk < 0 {
			t.Errorf("%+v", i)
		}
		if (i.Stamp == nil) != (found.Config[keyNamespace] == "") {
			t.Error("a stamp out of nothing")
		}
		New(Options{}).Diff(testMachine(), i)
	})
}

func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"type": "lifecycle", "metadata": {"action": "instance-started", "source": "/1.0/instances/web?project=p"}}`))
	f.Add([]byte(`{"type": "lifecycle", "metadata": {"action": "instance-x", "source": "/1.0/instances/%0a"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		event, ok := new(Driver).eventOf(data)
		if !ok && event != (containerbroker.Event{}) || hasControl(event.Instance) || hasControl(event.Action) {
			t.Errorf("%+v, %v", event, ok)
		}
	})
}

func FuzzReport(f *testing.F) {
	f.Add("init systemd\ncloud-init done\nresult\n{\"v1\": {\"errors\": [\"x\\u0007\"]}}")
	f.Fuzz(func(t *testing.T, report string) {
		ready := guestprobe.Report(report)
		if hasControl(ready.Init) || hasControl(ready.CloudInit) || len(ready.CloudInit) > maxMessage+64 {
			t.Errorf("%+v", ready)
		}
		if err := guestprobe.Judge(containerbroker.Machine{ExpectAddress: true}, report, ready, time.Minute); err != nil && hasControl(err.Error()) {
			t.Error(err)
		}
	})
}

func hasControl(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }

// A created object may satisfy a waiting instance. Deleted objects and changes
// without a name are irrelevant.
func TestEventsThatConcernInstances(t *testing.T) {
	for action, want := range map[string]bool{
		"image-created": true, "image-alias-created": true, "network-created": true, "storage-pool-created": true, "profile-updated": true,
		"image-deleted": false, "image-retrieved": false, "image-refreshed": false, "image-alias-deleted": false, "network-updated": false,
		"operation-cancelled": false, "warning-acknowledged": false,
	} {
		data := fmt.Sprintf(`{"type": "lifecycle", "metadata": {"action": %q, "source": "/1.0/x"}}`, action)
		event, ok := new(Driver).eventOf([]byte(data))
		if ok != want || ok && event != (containerbroker.Event{Action: action}) {
			t.Errorf("%s: %+v, %v", action, event, ok)
		}
	}
}
