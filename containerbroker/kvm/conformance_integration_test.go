//go:build integration

package kvm_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/images"
	"hostler/containerbroker/kvm"
	"hostler/containerbroker/kvm/kvmtest"
	"hostler/internal/run"
)

func TestConformance(t *testing.T) {
	r := newRig(t)
	brokertest.Run(t, brokertest.Harness{
		Broker: r.broker("hostler"), Other: r.broker("other"),
		Namespace: "hostler", OtherNamespace: "other",
		Image: r.image, Address: true, Virtual: true,
		Bridge: brokertest.Bridge(t), Device: brokertest.Device,
		AddForeign: r.addForeign,
		Detach:     func(_ *testing.T, name, _ string) { r.server.Virsh("detach-disk", name, "vdb", "--live") },
		Die: func(t *testing.T, name string) {
			if err := syscall.Kill(r.server.Guest(name), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
		Halve:      r.halve,
		BreakList:  func(*testing.T) { r.proxy.Add(kvmtest.ProcAllStats, kvmtest.Truncate) },
		LoseCreate: func(*testing.T) { r.proxy.Add(kvmtest.ProcDefine, kvmtest.Lose) },
	})
	if names := r.server.Names(); len(names) != 0 {
		t.Errorf("the suite left %v", names)
	}
	if files := r.server.Files(); len(files) != 0 {
		t.Errorf("the suite left %v", files)
	}
}

// rig is a private libvirt behind a proxy.
type rig struct {
	t      *testing.T
	server *kvmtest.Server
	proxy  *kvmtest.Proxy
	cache  *images.Cache
	image  string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	server := kvmtest.Start(t)
	cache, err := images.Open(images.Options{Dir: t.TempDir(), Sources: []string{"local"}, Runner: run.Host{}})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{
		t: t, server: server, proxy: kvmtest.NewProxy(t, server.Socket), cache: cache,
		image: kvmtest.TinyReference(t),
	}
}

func (r *rig) broker(namespace string) *kvm.Driver {
	return kvm.New(r.options(namespace))
}

func (r *rig) options(namespace string) kvm.Options {
	return kvm.Options{
		Socket: r.proxy.Socket, Namespace: namespace, Images: r.cache, Runner: run.Host{},
		RuntimeDir: r.server.Runtime,
	}
}

func (r *rig) addForeign(t *testing.T, name string) {
	t.Helper()
	r.server.Define("define", fmt.Sprintf("<domain type='qemu'><name>%s</name><memory unit='MiB'>64</memory><os><type>hvm</type></os>"+
		"<metadata><theirs xmlns='https://example.com/'>kept</theirs></metadata></domain>", name))
	t.Cleanup(func() { r.server.Virsh("undefine", name) })
}

// halve removes an instance's root disk.
func (r *rig) halve(t *testing.T, name string) {
	t.Helper()
	for _, file := range r.server.Files() {
		if strings.HasPrefix(file, "hostler-"+name+"-") && strings.HasSuffix(file, "root.qcow2") {
			if err := os.Remove(filepath.Join(r.server.PoolDir, file)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// host runs a program on the host.
func host(t *testing.T, path string, args ...string) string {
	t.Helper()
	// t.Context() is already cancelled during cleanup.
	result, err := run.Host{}.Run(context.WithoutCancel(t.Context()), run.Command{Path: path, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(result.Stdout))
}
