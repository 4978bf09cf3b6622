package cli

import (
	"encoding/json"
	"io/fs"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

func machine(name string, state spec.MachineState, message string) client.Machine {
	m := client.Machine{
		Name: name, Type: spec.LXD, Life: "alive", Status: state, Message: message, Image: "debian/12",
		Addresses: []string{}, Declaration: "site", UID: "uid-" + name, Generation: 1, Observed: true,
		Conditions: []spec.Condition{},
	}
	if state != spec.MachinePending {
		m.Instance, m.Created = name, before(90*time.Second)
	}
	return m
}

func running(name, address string) client.Machine {
	m := machine(name, spec.MachineRunning, "")
	m.Addresses = []string{address}
	return m
}

func retried(m client.Machine, attempts int, next time.Duration) client.Machine {
	m.Attempts, m.NextRetry = attempts, after(next)
	return m
}

func at(m client.Machine, n int) client.Machine { m.Percent = new(n); return m }

// standIns are the states of the host that the golden files name.
var standIns = map[string]func() *standIn{
	"empty": func() *standIn { return &standIn{harvest: client.Harvest{Mode: "destroyed", Configured: "destroyed"}} },
	"small": smallHost,
	"quiet": func() *standIn {
		s := smallHost()
		s.output = ""
		return s
	},
	"partly": func() *standIn {
		s := smallHost()
		s.notices = []string{"the images that kvm keeps are not listed: cannot reach libvirt"}
		return s
	},
	"ready":   readyHost,
	"refused": func() *standIn { return folderHost(false, true) },
	// A file of the user-data has a mistake.
	"mistake": func() *standIn {
		s := folderHost(false, true)
		refused := &s.folder[len(s.folder)-1].Refused[0]
		refused.Path = "/etc/hostler/conf.d/cloud-init-web.yaml"
		refused.Reason = refused.Path + `:2:1: the key "machine" is not known here`
		return s
	},
	"missing": func() *standIn { return folderHost(true, true) },
	// Two files declare a machine differently.
	"conflict": func() *standIn {
		s := folderHost(false, true)
		s.folder[len(s.folder)-1].Refused[0].Reason = "machine/web is declared differently at /etc/hostler/conf.d/db.yaml:3 and at /etc/hostler/conf.d/web.yaml:3; make both equal, or remove one"
		return s
	},
	// web waits for its move.
	"withheld": func() *standIn {
		s := smallHost()
		s.machines = []client.Machine{running("web", "10.0.0.2")}
		s.objects["machine/web"] = client.Object{Kind: "machine", Name: "web", Spec: spec.Encode(spec.MachineRecord{Migration: &spec.Migration{
			From: spec.LXD, To: spec.Incus, Phase: spec.MigrationWaiting, Waits: "waits for `hostler adopt --host` or `hostler clean`, because the store was made on a host with another machine-id",
		}})}
		return s
	},
	"reading": func() *standIn { return folderHost(true, false) },
	"mute":    func() *standIn { s := readyHost(); s.mute = true; return s },
	"broken": func() *standIn {
		s := readyHost()
		s.machines = append(s.machines, machine("db", spec.MachineError, "there is no image debian/99"))
		s.declarations[0].Objects = append(s.declarations[0].Objects, "machine/db")
		s.objects["machine/db"] = client.Object{Kind: "machine", Name: "db"}
		s.status.Machines = map[string]int{"running": 1, "error": 1}
		return s
	},
	// A machine whose removal is held has an error.
	"kept": func() *standIn {
		s := readyHost()
		s.machines = append(s.machines, machine("old", spec.MachineError, "cannot start: no space left on device"))
		return s
	},
	// A machine is being removed and is declared again.
	"remade": func() *standIn {
		s := readyHost()
		s.machines[0].Life, s.machines[0].Status, s.freeze = "dying", spec.MachineDying, true
		return s
	},
	// The removal failed for good.
	"unremovable": func() *standIn {
		s := readyHost()
		s.machines[0] = machine("web", spec.MachineError, "cannot delete: its disk is busy")
		s.machines[0].Life, s.freeze = "dying", true
		return s
	},
	"degraded": func() *standIn {
		s := readyHost()
		s.status.Drifted = []string{"web"}
		s.status.Workers = []client.Worker{{Name: "setup-kvm", State: "failed", Message: "cannot watch the store: closed", Since: *before(time.Minute)}}
		s.status.Copied = "the store was made on a host with another machine-id"
		s.status.Held = "machine/old is no longer declared and still runs: `hostler allow destroy machine/old` removes it"
		s.status.Guard = &client.Guarded{Object: "network/lan", Phase: "confirming", Since: *before(10 * time.Second), Deadline: *after(4 * time.Minute)}
		return s
	},
	"timed":  timedHost,
	"stored": storedHost,
	"moving": movingHost,
	"typed":  typedHost,
	"denied": func() *standIn {
		return &standIn{err: fault.New(fault.Forbidden,
			"cannot reach the agent at /run/hostler/hostler.sock: %w (use sudo, or join the group hostler or hostler-admin)", fs.ErrPermission)}
	},
	"reader": func() *standIn {
		return &standIn{err: fault.New(fault.Forbidden, "you may not do this")}
	},
	"hostile":  hostileHost,
	"planned":  plannedHost,
	"held":     heldHost,
	"starting": startingHost,
	"failing":  failingHost,
	"stuck":    stuckHost,
	"leaving":  leavingHost,
	"late":     lateHost,
	"toolless": toollessHost,
	"misspelt": misspeltHost,
	"guarded": func() *standIn {
		return &standIn{guarded: "network/lan", status: client.Status{
			Version: "1.2.3", Namespace: "hostler", Harvest: "destroyed", Started: *before(time.Hour),
			Guard: &client.Guarded{Object: "network/lan", Phase: "confirming", Since: *before(10 * time.Second), Deadline: *after(4*time.Minute + 50*time.Second)},
		}}
	},
}

func smallHost() *standIn {
	web := running("web", "10.20.0.10")
	web.Addresses = append(web.Addresses, "fd42::10")
	failing := retried(machine("db", spec.MachineError, "cannot start: no space left on device"), 3, 8*time.Second)
	stopped := machine("spare", spec.MachineStopped, "")
	return &standIn{
		machines: []client.Machine{failing, stopped, web},
		declarations: []client.Declaration{{
			Name: "site", Source: "apply", Objects: []string{"machine/db", "machine/spare", "machine/web"},
			Created: *before(3 * time.Hour), Updated: *before(5 * time.Minute), Generation: 2,
		}},
		rows: map[string]string{"images/available": `[
			{"reference": "debian/13", "types": ["kvm", "lxd"], "from": "http://mirror.test/debian"},
			{"reference": "ubuntu/26.04", "types": ["lxd"], "from": "", "problem": "/etc/apt has no Ubuntu mirror; set apt.ubuntu-mirror in hostler's configuration"}
		]`},
		images: []client.Image{{
			Reference: "debian/12", Digest: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			Format: "squashfs", Size: 92 << 20, Created: *before(49 * time.Hour), UsedBy: []string{"web"}, Where: "cache",
		}, {
			Digest: "fedcba9876543210fedcba9876543210", Format: "lxd", Size: 1 << 20, Created: *before(time.Hour),
			UsedBy: []string{"a", "b", "c", "d"}, Where: "lxd",
		}},
		objects: map[string]client.Object{
			"machine/web": webObject(), "machine/spare": {Kind: "machine", Name: "spare"},
			"declaration/site": {
				Kind: "declaration", Name: "site", UID: "uid-site", Life: "alive", Generation: 2, Created: *before(3 * time.Hour), Updated: *before(5 * time.Minute),
				Spec: json.RawMessage(`{"source":"apply","document":{"version":1,"name":"site","machines":{"web":{"type":"lxd","image":"debian/12"}}}}`),
			},
		},
		events: []client.Event{
			{Seq: 1, Time: *before(2 * time.Minute), Object: "machine/web", Level: "info", Reason: "Created", Message: "created from debian/12"},
			{Seq: 2, Time: *before(time.Minute), Object: "machine/db", Level: "error", Reason: "StartFailed", Message: "cannot start: no space left on device"},
		},
		harvest: client.Harvest{Mode: "none", Configured: "destroyed", Override: "none"},
		status:  smallStatus(),
		checks: []client.Check{
			{Name: "lxd", Result: "ok", Message: "LXD 5.0.2 answers"},
			{Name: "inotify", Result: "warning", Message: "fs.inotify.max_user_instances is 128", Mend: "the agent raises it when the first machine is declared"},
			{Name: "disk", Result: "error", Message: "3 % free on /var/lib/hostler", Mend: "free some space"},
		},
		output: "Linux\n",
	}
}

func webObject() client.Object {
	return client.Object{
		Kind: "machine", Name: "web", UID: "uid-web", Revision: 7, Generation: 3, Life: "alive",
		Created: *before(time.Hour), Updated: *before(time.Minute),
		Spec: json.RawMessage(`{"declaration":"site","allow":["restart"],"restart-consents":1,"machine":{"type":"lxd","image":"debian/12","cpus":2,"memory":"512MiB","cloud-init":{"user-data":"#cloud-config\npackages: [nginx]\n"}}}`),
		Status: spec.Encode(spec.MachineStatus{
			State: spec.MachineError, Message: "cannot set limits: refused",
			Instance: &spec.InstanceInfo{Name: "web", Created: *before(50 * time.Minute)}, Addresses: []string{"10.20.0.10"},
			Hardware:   &spec.Hardware{CPUs: 1, Memory: 256 << 20, Arch: "amd64"},
			Conditions: []spec.Condition{{Type: "Ready", Status: false, Reason: "UpdateFailed", Message: "cannot set limits: refused", Since: *before(time.Minute)}},
			Attempts:   spec.Attempts{Count: 2, NextRetry: after(9 * time.Second), ErrorKind: "transient"}, ObservedGeneration: 2,
		}),
		Events: []client.Event{{Seq: 5, Time: *before(time.Minute), Object: "machine/web", Level: "warning", Reason: "UpdateFailed", Message: "cannot set limits: refused"}},
	}
}

// timedHost has machines whose creation was measured.
func timedHost() *standIn {
	s := smallHost()
	for i := range s.machines {
		switch s.machines[i].Name {
		case "web":
			s.machines[i].Took = &spec.Took{Image: 48.25, Turn: 0.004, Create: 6.5, Start: 1.25, Boot: 96.5, CloudInit: 88.125}
		case "db":
			s.machines[i].Took = &spec.Took{Turn: 12.5, Create: 5.75}
		}
	}
	for i, e := range []struct {
		reason string
		before time.Duration
	}{{"Initialising", 600 * time.Second}, {"InitialiseFailed", 590 * time.Second}, {"Initialising", 560 * time.Second}, {"Initialised", 487500 * time.Millisecond}, {"ProvisionerStarted", 480 * time.Second}} {
		s.events = append(s.events, client.Event{Seq: int64(10 + i), Time: *before(e.before), Object: "type/lxd", Level: "info", Reason: e.reason})
	}
	return s
}

func smallStatus() client.Status {
	yes := true
	return client.Status{
		Version: "1.2.3", Namespace: "hostler", Started: *before(26 * time.Hour), Harvest: "destroyed",
		Types:    []client.TypeStatus{{Type: "lxd", State: "ready", Message: "LXD 5.0.2", Supported: &yes}, {Type: "kvm", State: "absent"}},
		Workers:  []client.Worker{{Name: "provisioner-lxd", State: "running", Since: *before(26 * time.Hour), Passes: 812}},
		Machines: map[string]int{"running": 1, "error": 1, "stopped": 1},
		Unknown:  []client.UnknownInstance{{Type: "lxd", Name: "old", UID: "uid-old"}},
		Moved:    []client.MovedInstance{{Type: "incus", Name: "web", UID: "uid-web", MadeAs: "lxd"}},
		UnknownStorage: []client.UnknownStorage{
			{Kind: "volume", Name: "data", Provider: "loop", Size: 1 << 30, Path: "/var/lib/hostler/volumes/data.img", UID: "uid-data"},
			{Kind: "filesystem", Name: "www", Provider: "managed", UID: "uid-data"},
		},
		Locks:   []client.Lock{{Name: "host", Holder: "hostlerd", Purpose: "installing packages", Since: *before(4 * time.Second), Waiting: []string{"containersetup"}}},
		Disk:    []client.Disk{{Path: "/var/lib/hostler", Size: 100 << 30, Used: 7 << 30, Free: 25 << 30}},
		Notices: []string{"/etc/hostler/conf.d/bad.yaml is not applied: /etc/hostler/conf.d/bad.yaml:3:1: the key \"machine\" is not known here\n  3 | machine: {}\n    | ^"},
	}
}

// hostileHost holds texts of guests that try to confuse a terminal.
func hostileHost() *standIn {
	m := machine("web", spec.MachineError, "\x1b[2J\x1b]0;owned\x07 line one\nline two\t\x9b31m \u202egpj.exe \xff end")
	wide := machine("db", spec.MachineProvisioning, "データを取得 données 🚀")
	return &standIn{machines: []client.Machine{wide, m}, output: "boot\x1b[31m red\x1b[0m\x1b[2J\r\nlogin:\x07\n"}
}

func plannedHost() *standIn {
	return &standIn{plan: client.Plan{
		Steps: []client.Step{
			{Object: "machine/web", Action: "create", Impact: "none", Detail: "debian/12 on lxd"},
			{Object: "machine/db", Action: "update", Impact: "live", Detail: "two limits", Changes: []client.Change{
				{Field: "memory", From: "512MiB", To: "1GiB", Impact: "live"}, {Field: "cpus", To: "2", Impact: "live"},
			}},
			{Object: "machine/old", Action: "delete", Impact: "destroy", Detail: "no longer declared"},
			{Object: "machine/same", Action: "none", Impact: "none"},
			{Object: "type/lxd", Action: "create", Impact: "none", Detail: "install and configure LXD"},
		},
		Machines: []string{"db", "same", "web"}, Removed: []string{"machine/old"},
	}}
}

func heldHost() *standIn {
	return &standIn{machines: []client.Machine{running("db", "10.1.2.4")}, plan: client.Plan{
		Steps: []client.Step{
			{Object: "machine/db", Action: "update", Impact: "live", Detail: "memory"},
			{
				Object: "machine/web", Action: "restart", Impact: "restart", Detail: "nesting changes", Held: "--allow restart", Allow: "restart",
				Changes: []client.Change{{Field: "nesting", From: "false", To: "true", Impact: "restart", Reason: "read at start only"}},
			},
			{Object: "machine/www", Action: "recreate", Impact: "recreate", Detail: "image changes", Held: "--allow recreate", Allow: "recreate"},
		},
		Machines: []string{"db", "web", "www"},
	}}
}

func startingHost() *standIn {
	web, db := machine("web", spec.MachinePending, ""), machine("db", spec.MachinePending, "")
	idle := machine("spare", spec.MachineStopped, "")
	off := false
	return &standIn{
		plan: client.Plan{
			Steps:    []client.Step{{Object: "machine/web", Action: "create", Impact: "none", Detail: "debian/12 on lxd"}},
			Machines: []string{"db", "spare", "web"}, Removed: []string{"machine/old"},
		},
		objects:  map[string]client.Object{"machine/spare": {Kind: "machine", Name: "spare", Spec: spec.Encode(spec.MachineRecord{Machine: spec.Machine{Running: &off}})}},
		machines: []client.Machine{db, machine("old", spec.MachineRunning, ""), idle, web},
		lost:     2,
		film: [][]client.Machine{
			{db, machine("old", spec.MachineDying, "stopping"), idle, at(machine("web", spec.MachineProvisioning, "fetching debian/12"), 41)},
			{db, idle, at(machine("web", spec.MachineProvisioning, "fetching debian/12"), 43)},
			{retried(machine("db", spec.MachineError, "cannot create: try again"), 1, 5*time.Second), idle, at(machine("web", spec.MachineProvisioning, "fetching debian/12"), 50)},
			{running("db", "10.1.2.4"), idle, machine("web", spec.MachineProvisioning, "waiting for cloud-init")},
			{running("db", "10.1.2.4"), idle, running("web", "10.1.2.3")},
		},
	}
}

func failingHost() *standIn {
	w := startingHost()
	w.lost = 0
	w.plan.Removed = nil
	w.film = [][]client.Machine{
		{machine("db", spec.MachineError, "cloud-init failed: \x1b[31mno such package"), machine("spare", spec.MachineStopped, ""), machine("web", spec.MachineProvisioning, "creating")},
		{machine("db", spec.MachineError, "cloud-init failed: \x1b[31mno such package"), machine("spare", spec.MachineStopped, ""), running("web", "10.1.2.3")},
	}
	return w
}

func stuckHost() *standIn {
	w := startingHost()
	w.lost, w.freeze = 0, true
	w.declarations = []client.Declaration{{Name: "site", Objects: []string{"machine/db", "machine/spare", "machine/web"}}}
	w.film = [][]client.Machine{{
		retried(machine("db", spec.MachineError, "cannot create: try again"), 4, time.Minute),
		machine("spare", spec.MachineStopped, ""), machine("web", spec.MachineProvisioning, "waiting for cloud-init"),
	}}
	return w
}

func leavingHost() *standIn {
	w := smallHost()
	w.film = [][]client.Machine{
		{machine("spare", spec.MachineStopped, ""), machine("web", spec.MachineDying, "stopping")},
		{machine("spare", spec.MachineStopped, "")},
		{},
	}
	return w
}

// lateHost has a machine that looks settled although its steps are about to
// start.
func lateHost() *standIn {
	return &standIn{machines: []client.Machine{running("web", "10.1.2.3")}, late: 1, freeze: true, plan: client.Plan{
		Steps:    []client.Step{{Object: "machine/web", Action: "update", Impact: "live", Detail: "memory"}},
		Machines: []string{"web"},
	}}
}

// storedHost has storage, with a volume that cannot be detached.
func storedHost() *standIn {
	objects := map[string]client.Object{"volume/data": {Kind: spec.KindVolume, Name: "data"}, "volume/raw": {Kind: spec.KindVolume, Name: "raw"}}
	return &standIn{objects: objects, freeze: true, rows: map[string]string{
		"volumes": `[{"name":"data","provider":"loop","size":1073741824,"status":"detaching","device":"/dev/loop3","path":"","attachments":[],
			"message":"/dev/loop3 is in use: sleep (pid 4711) holds /held","observed":true,"attempts":2,"next-retry":"2020-01-02T12:01:00Z","life":"dying","declaration":"site","uid":"uid-data"},
			{"name":"raw","provider":"loop","size":67108864,"status":"attached","device":"/dev/loop4","path":"","observed":true,
			"attachments":[{"machine":"web","status":"attached","source":"/dev/loop4","read-only":false,"message":""}],"message":""}]`,
		"attachments": `[{"name":"filesystem/www@web","object":"filesystem/www","machine":"web","path":"/srv","source":"/var/lib/hostler/mounts/machines/web/www","read-only":true,"status":"attached"},
			{"name":"volume/raw@web","object":"volume/raw","machine":"web","path":"/dev/hostler-raw","status":"pending","message":"waiting for its device","attempts":2,"next-retry":"2020-01-02T12:01:00Z"}]`,
		"networks": `[{"name":"lan","bridge":"br-lan","addresses":["10.20.0.1/24","fd42::1/64"],"status":"error","message":"cannot make it","attempts":1,
			"next-retry":"2020-01-02T12:01:00Z","life":"alive","declaration":"site","uid":"uid-lan","guests":{}}]`,
		"block-devices": `[{"name":"loop3","path":"/dev/loop3","preferred":"/dev/loop3","type":"loop","size":1073741824,"in-use":true,"content":"ext4 filesystem labelled \"h-0123456789\"","uuid":"u-1","mounts":["/var/lib/hostler/mounts/host/www"],"links":[],"backing":"/var/lib/hostler/volumes/data.img"},
			{"name":"sda","path":"/dev/sda","preferred":"/dev/disk/by-id/wwn-0x5000","type":"disk","size":500107862016,"read-only":true,"wwn":"0x5000","serial":"S1","links":["/dev/disk/by-id/wwn-0x5000"],"mounts":[]}]`,
	}}
}

// typedHost has a container type whose preparation failed.
func typedHost() *standIn {
	yes := true
	return &standIn{objects: map[string]client.Object{"type/lxd": {
		Kind: spec.KindContainerType, Name: "lxd", UID: "uid-lxd", Revision: 3, Generation: 1, Life: "alive", Created: *before(time.Hour), Updated: *before(time.Minute),
		Status: spec.Encode(spec.TypeStatus{
			State: "error", Message: "cannot install lxd: no space left on device", Supported: &yes, ObservedGeneration: 1,
			Attempts: spec.Attempts{Count: 3, ErrorKind: "needs-operator"},
		}),
		Events: []client.Event{{Seq: 2, Time: *before(time.Minute), Object: "type/lxd", Level: "error", Reason: "InitialiseFailed", Message: "cannot install lxd"}},
	}}}
}

// toollessHost has a filesystem that waits for the operator to install a
// program, and a ready network.
func toollessHost() *standIn {
	return &standIn{
		plan: client.Plan{
			Steps:   []client.Step{{Object: "filesystem/www", Action: "create", Impact: "none", Detail: "xfs on volume/data"}},
			Objects: []string{"filesystem/www", "network/lan"},
		},
		rows: map[string]string{
			"filesystems": `[{"name":"www","provider":"managed","size":0,"status":"error","message":"/sbin/mkfs.xfs is not there: install the package xfsprogs",
				"observed":true,"attempts":6,"next-retry":"2020-01-02T12:16:00Z","error-kind":"needs-operator","attachments":[]}]`,
			"networks": `[{"name":"lan","bridge":"br-lan","status":"ready","observed":true}]`,
		},
	}
}

// misspeltHost has a machine with a misspelt image.
func misspeltHost() *standIn {
	return &standIn{plan: client.Plan{
		Steps:    []client.Step{{Object: "machine/web", Action: "create", Impact: "none", Detail: "from debain/12"}},
		Warnings: []string{`machine/web: no image "debain/12" on this host (cache, aliases of the hypervisor), and hostler can build only debian/12; did you mean debian/12?`},
		Machines: []string{"web"},
	}}
}
