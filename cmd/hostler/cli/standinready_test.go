package cli

import (
	"time"

	"hostler/agent/client"
)

// readyHost has a network and a machine, both as declared.
func readyHost() *standIn {
	return &standIn{
		machines:     []client.Machine{running("web", "10.20.0.10")},
		declarations: []client.Declaration{{Name: "site", Objects: []string{"machine/web", "network/lan"}}},
		rows:         map[string]string{"networks": `[{"name": "lan", "life": "alive", "status": "ready", "observed": true}, {"name": "old", "life": "dying", "status": "ready", "observed": true}]`},
		objects:      map[string]client.Object{"machine/web": {Kind: "machine", Name: "web"}},
		status:       client.Status{Version: "1.2.3", Namespace: "hostler", Harvest: "destroyed", Started: *before(time.Hour), Machines: map[string]int{"running": 1}},
	}
}

// folderHost is readyHost with files of conf.d that are not in force or not read.
func folderHost(retried, refused bool) *standIn {
	s := readyHost()
	f := client.FolderState{Path: "/etc/hostler/conf.d", Read: refused}
	if refused {
		f.Refused = []client.RefusedFile{{Path: "/etc/hostler/conf.d/web.yaml", Reason: `/etc/hostler/conf.d/web.yaml:2:1: the key "machine" is not known here`}}
	}
	if retried {
		for i := range f.Refused {
			f.Refused[i].Reason, f.Refused[i].Retried = `/etc/hostler/conf.d/web.yaml:3:9: the network "lan" is not declared in any document`, true
		}
	}
	s.folder = []client.FolderState{{Path: f.Path}, f}
	return s
}
