//go:build integration

package lxd_test

import (
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/lxd"
	"hostler/containerbroker/lxd/lxdtest"
)

// dialectOf returns a daemon's dialect.
func dialectOf(d lxdtest.Daemon) lxd.Dialect {
	if d == lxdtest.Incus {
		return lxd.Incus
	}
	return lxd.LXD
}

// dialect is that of the daemon that the tests use.
func dialect() lxd.Dialect { return dialectOf(lxdtest.Chosen()) }

// The tests of this package run side by side, each with a daemon of its own:
// LXD, or the daemon that HOSTLER_TEST_DAEMON names.
func TestConformance(t *testing.T) {
	t.Parallel()
	runs := []lxdtest.Options{
		{Daemon: lxdtest.Chosen(), Driver: "btrfs"}, {Daemon: lxdtest.Chosen(), Driver: "dir"},
	}
	if lxdtest.Chosen() != lxdtest.Incus {
		runs = append(runs, lxdtest.Options{Daemon: lxdtest.Incus, Driver: "btrfs"})
	}
	for _, run := range runs {
		// Not side by side: all give their machines the same MAC addresses, which
		// name the NICs' ends on the host.
		t.Run(run.Daemon.Name+" "+run.Driver, func(t *testing.T) {
			server := lxdtest.StartWith(t, run)
			proxy := lxdtest.NewProxy(t, server.Socket)
			dialect := dialectOf(run.Daemon)
			broker := lxd.New(lxd.Options{Dialect: dialect, Socket: proxy.Socket, Namespace: "hostler"})
			brokertest.Run(t, brokertest.Harness{
				Broker:    broker,
				Other:     lxd.New(lxd.Options{Dialect: dialect, Socket: proxy.Socket, Namespace: "other"}),
				Namespace: "hostler", OtherNamespace: "other",
				Image: dialect.Type + ":" + server.TinyAlias, Address: true,
				Bridge: brokertest.Bridge(t), Folder: folder, Device: brokertest.Device,
				AddForeign: func(t *testing.T, name string) { addForeign(t, server, name) },
				Die:        func(t *testing.T, name string) { die(t, broker, name) },
				Halve: func(t *testing.T, name string) {
					if err := os.RemoveAll(filepath.Join(server.Dir, "storage-pools", server.Pool, "containers", name)); err != nil {
						t.Fatal(err)
					}
				},
				BreakList: func(*testing.T) {
					proxy.Add(lxdtest.Rule{Method: http.MethodGet, Path: "/1.0/instances?", Fault: lxdtest.Truncate})
				},
				LoseCreate: func(*testing.T) {
					proxy.Add(lxdtest.Rule{Method: http.MethodPost, Path: "/1.0/instances", Fault: lxdtest.LoseReply})
				},
			})
			if names := server.Names(); len(names) != 0 {
				t.Errorf("the suite left %v", names)
			}
		})
	}
}

func addForeign(t *testing.T, server *lxdtest.Server, name string) {
	t.Helper()
	err := server.API(http.MethodPost, "/1.0/instances", api.InstancesPost{
		Name: name, Source: api.InstanceSource{Type: "image", Alias: server.TinyAlias},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		path := "/1.0/instances/" + name
		_ = server.API(http.MethodPut, path+"/state", api.InstanceStatePut{Action: "stop", Force: true}, nil)
		if err := server.API(http.MethodDelete, path, nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// die kills process 1 of an instance.
func die(t *testing.T, broker containerbroker.Broker, name string) {
	t.Helper()
	all, err := broker.List(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.Name == name {
			if i.PID <= 0 {
				t.Fatalf("%s has process %d", name, i.PID)
			}
			if err := syscall.Kill(int(i.PID), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
}
