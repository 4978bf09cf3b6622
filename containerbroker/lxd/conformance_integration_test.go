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

// The tests of this package run side by side, each with an LXD of its own.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"btrfs", "dir"} {
		// Not side by side: both give their machines the same MAC addresses, which
		// name the NICs' ends on the host.
		t.Run(driver, func(t *testing.T) {
			server := lxdtest.StartWith(t, lxdtest.Options{Driver: driver})
			proxy := lxdtest.NewProxy(t, server.Socket)
			broker := lxd.New(lxd.Options{Socket: proxy.Socket, Namespace: "hostler"})
			brokertest.Run(t, brokertest.Harness{
				Broker:    broker,
				Other:     lxd.New(lxd.Options{Socket: proxy.Socket, Namespace: "other"}),
				Namespace: "hostler", OtherNamespace: "other",
				Image: "lxd:" + server.TinyAlias, Address: true,
				Bridge: bridge(t), Folder: folder, Device: device,
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
