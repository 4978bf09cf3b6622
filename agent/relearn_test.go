package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/api"
	"hostler/agent/provisioner"
	"hostler/agent/reconcile"
	"hostler/agent/services/metrics"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/storageprovisioner"
	"hostler/agent/workerapi"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
	"hostler/internal/fault"
	"hostler/internal/idle"
	"hostler/internal/paths"
	"hostler/storage"
)

// unlisted is a source whose list fails while the test asks for that.
type unlisted struct {
	storage.VolumeSource
	well atomic.Bool
}

func (u *unlisted) List(context.Context) ([]storage.Volume, error) {
	if !u.well.Load() {
		return nil, errors.New("input/output error")
	}
	return nil, nil
}

// lossyHost is an agent on a host with one LXD and no libvirt. Its store is
// lost at every open, if the test allows that.
type lossyHost struct {
	*host
	t       *testing.T
	dir     string
	lxd     *brokertest.Fake
	disk    *unlisted
	boot    string // the boot id that the agent reads at its start
	machine string // the digest of the machine-id, likewise
}

func newLossyHost(t *testing.T) *lossyHost {
	return &lossyHost{t: t, dir: t.TempDir(), lxd: brokertest.New(), disk: &unlisted{}, boot: facts().Boot}
}

func stamped(name, uid, namespace string) containerbroker.Instance {
	record := provisioner.StampedRecord{Declaration: "site", Machine: spec.Machine{Type: spec.LXD, Image: "debian/12", CPUs: 2}}
	return containerbroker.Instance{
		Name: name, Status: containerbroker.StatusRunning,
		Stamp: &containerbroker.Stamp{Namespace: namespace, UID: uid, Token: "token-" + name, Record: string(spec.Encode(record))},
	}
}

// open starts the agent again, as Run does.
func (l *lossyHost) open() state.OpenReport {
	l.t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, report, err := state.Open(l.t.Context(), state.Options{Dir: filepath.Join(l.dir, "state"), Logger: log})
	if err != nil {
		l.t.Fatal(err)
	}
	l.host = &host{
		paths: paths.Paths{RunDir: filepath.Join(l.dir, "run")}, local: store, store: store, logger: log, now: time.Now,
		made: map[spec.ContainerType]driver{}, metrics: metrics.New("test"), notices: map[string]string{}, memory: idle.New(log),
		sources: storageprovisioner.Sources{Volumes: map[string]storage.VolumeSource{"loop": l.disk}},
		drivers: map[spec.ContainerType]constructors{
			spec.LXD: {driver: func(*host) (driver, error) { return driver{Broker: l.lxd, Images: l.lxd}, nil }},
			spec.KVM: {driver: func(*host) (driver, error) { return driver{}, fault.New(fault.NotReady, "there is no libvirt") }},
		},
	}
	config := spec.DefaultConfig()
	config.Harvest = string(provisioner.HarvestAll)
	l.recovery = l.newRecovery()
	if err := errors.Join(l.recovery.Start(l.t.Context(), report, l.boot, l.machine), l.writeConfig(l.t.Context(), config)); err != nil {
		l.t.Fatal(err)
	}
	return report
}

// learn compares a type's instances with the records.
func (l *lossyHost) learn(ctx context.Context, t spec.ContainerType) error {
	return l.recovery.Scan(ctx, t)
}

// record returns the record of losses of the store.
func (l *lossyHost) record() spec.Recovery {
	l.t.Helper()
	host, err := l.hostRecord(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return host.Recovery
}

// notices returns the texts about the store's history.
func (l *lossyHost) notices() []string {
	l.t.Helper()
	_, status, _, err := l.object().Read(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return status.Notices
}

func (l *lossyHost) close() {
	l.t.Helper()
	if err := l.local.Close(); err != nil {
		l.t.Error(err)
	}
}

// serve runs the API until the test ends.
func (l *lossyHost) serve() (socket string) {
	l.t.Helper()
	server, err := l.server(Options{})
	if err != nil {
		l.t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "relearn") // short, because a socket's path is limited
	if err != nil {
		l.t.Fatal(err)
	}
	socket = filepath.Join(dir, "s", "hostler.sock")
	listener, err := api.Listen(slog.New(slog.DiscardHandler), socket, os.Getgid())
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	l.t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			l.t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			l.t.Error(err)
		}
	})
	return socket
}

// passes counts a provisioner's passes.
type passes struct{ all, well atomic.Int64 }

func (p *passes) Pass(_ time.Duration, err error) {
	if p.all.Add(1); err == nil {
		p.well.Add(1)
	}
}

func (*passes) Operation(string, time.Duration, error) {}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never came: " + what)
		}
	}
}

// P3: a provisioner in a separate process outlives the loss of the agent's
// store. Until the records are restored, the agent returns none to it, so that
// no instance counts as an orphan in any harvest mode. Then the provisioner
// goes on.
func TestP3SurvivingProvisionerOfALostStoreHarvestsNothing(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, dir string){
		"damaged":  func(t *testing.T, dir string) { damageStore(t, filepath.Join(dir, "state.db")) },
		"all gone": func(t *testing.T, dir string) { removeStore(t, dir) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLossyHost(t)
			l.disk.well.Store(true)
			l.open()
			l.close()
			lose(t, filepath.Join(l.dir, "state"))
			l.lxd.Add(stamped("web", "uid-web", "hostler"))
			l.lxd.Add(stamped("db", "uid-db", "hostler"))
			l.open()
			defer l.close()

			store := workerapi.NewStore(l.serve(), string(spec.LXD))
			ctx, cancel := context.WithCancel(context.Background())
			done, looks := make(chan error, 1), &passes{}
			go func() {
				done <- provision(ctx, spec.LXD, reconcile.Common{Store: store, Metrics: looks, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}, l.lxd, l.lxd, l.config())
			}()
			stop := func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				store.Close()
			}
			defer stop()
			until(t, "two looks", func() bool { return looks.all.Load() >= 2 })
			if looks.well.Load() != 0 {
				t.Error("the provisioner was told of records while they were not found again")
			}
			if err := l.learn(t.Context(), spec.LXD); err != nil {
				t.Fatal(err)
			}
			// A change wakes the provisioner; its own next try may be half a minute
			// away.
			until(t, "a whole look", func() bool { return looks.well.Load() >= 1 })
			if n := l.lxd.Calls(brokertest.Delete); n != 0 || !slices.Equal(l.lxd.Names(), []string{"db", "web"}) {
				t.Errorf("%d deletes; left are %v", n, l.lxd.Names())
			}
		})
	}
}

// While the lost records cannot be restored, the agent returns none.
func TestUnfoundRecordsAreNotTold(t *testing.T) {
	l := newLossyHost(t)
	l.open()
	l.close()
	damageStore(t, filepath.Join(l.dir, "state", "state.db"))
	l.open()
	defer l.close()
	store := workerapi.NewStore(l.serve(), string(spec.LXD))
	defer store.Close()
	for range 2 {
		if err := l.learn(t.Context(), spec.LXD); err == nil {
			t.Fatal("the storage was listed")
		}
		if _, _, err := store.List(t.Context(), spec.KindMachine); !fault.Is(err, fault.NotReady) {
			t.Errorf("listed: %v", err)
		}
	}
	l.disk.well.Store(true)
	if err := l.learn(t.Context(), spec.LXD); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.List(t.Context(), spec.KindMachine); err != nil {
		t.Error(err)
	}
}

func damageStore(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("this is no database"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func removeStore(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// The recovery ends when every existing hypervisor was compared. The next start
// restores nothing, and instances that were left on purpose stay undeclared.
func TestARebuiltStoreSettlesWithoutLibvirt(t *testing.T) {
	l := newLossyHost(t)
	l.disk.well.Store(true)
	l.open()
	l.close()
	damageStore(t, filepath.Join(l.dir, "state", "state.db"))
	l.lxd.Add(stamped("web", "uid-web", "hostler"))
	if !l.open().Rebuilt {
		t.Fatal("the store was not lost")
	}
	if err := l.learn(t.Context(), spec.LXD); err != nil {
		t.Fatal(err)
	}
	if err := l.learn(t.Context(), spec.KVM); !fault.Is(err, fault.NotReady) {
		t.Fatal(err)
	}
	web := state.ID{Kind: spec.KindMachine, Name: "web"}
	if _, err := l.store.Write(t.Context(), state.Atomic, state.Write{ID: web, Revision: state.AnyRevision, Delete: true}); err != nil {
		t.Fatal(err)
	}
	l.close()
	l.open()
	if r := l.record(); r.Phase != spec.RecoveryWhole || len(r.Pending) > 0 {
		t.Errorf("still to be rebuilt: %+v", r)
	}
	defer l.close()
	if err := l.learn(t.Context(), spec.LXD); err != nil {
		t.Fatal(err)
	}
	if _, err := l.store.Get(t.Context(), web); !fault.Is(err, fault.NotFound) {
		t.Errorf("what was left on purpose is declared again: %v", err)
	}
}

// The recovery does not end while an existing hypervisor or the storage cannot
// be read; a hypervisor that starts late is awaited.
func TestARebuiltStoreWaitsForWhatIsThere(t *testing.T) {
	l := newLossyHost(t)
	l.disk.well.Store(true)
	l.open()
	l.close()
	damageStore(t, filepath.Join(l.dir, "state", "state.db"))
	l.open()
	var there atomic.Bool
	virtual := brokertest.New()
	libvirt := constructors{driver: func(*host) (driver, error) {
		if !there.Load() {
			return driver{}, fault.New(fault.NotReady, "there is no libvirt yet")
		}
		return driver{Broker: virtual, Images: virtual}, nil
	}}
	l.drivers[spec.KVM] = libvirt
	record := provisioner.StampedRecord{Machine: spec.Machine{Type: spec.KVM, Image: "debian/12"}}
	virtual.Add(containerbroker.Instance{Name: "db", Stamp: &containerbroker.Stamp{Namespace: "hostler", UID: "uid-db", Record: string(spec.Encode(record))}})
	there.Store(true)
	if err := l.learn(t.Context(), spec.LXD); err != nil {
		t.Fatal(err)
	}
	l.close()
	l.open()
	if r := l.record(); r.Phase != spec.RecoveryScanning || !slices.Equal(r.Pending, []string{"kvm"}) {
		t.Fatalf("settled with a hypervisor that was not looked through: %+v", r)
	}
	l.drivers[spec.KVM] = libvirt
	there.Store(false)
	done := make(chan error, 1)
	synced := func() bool { return l.record().Scanned("kvm") }
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- l.recovery.Run(spec.KVM, time.Millisecond)(ctx) }()
	if synced() {
		t.Error("known before it is there")
	}
	there.Store(true)
	until(t, "the late hypervisor is known", synced)
	until(t, "the end of the recovery", func() bool { return l.record().Phase == spec.RecoveryWhole })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := l.store.Get(t.Context(), state.ID{Kind: spec.KindMachine, Name: "db"}); err != nil {
		t.Error(err)
	}
	l.close()
}

// hanging is a broker whose list hangs until the end of its context.
type hanging struct {
	containerbroker.Broker
	asked chan struct{}
}

func (h hanging) List(ctx context.Context, _ bool) ([]containerbroker.Instance, error) {
	close(h.asked)
	<-ctx.Done()
	return nil, ctx.Err()
}

// A hypervisor that hangs does not hold up the scan of another, and the
// instances of the other may be deleted again.
func TestAHangingHypervisorHoldsUpNoOther(t *testing.T) {
	l := newLossyHost(t)
	l.disk.well.Store(true)
	l.open()
	l.close()
	damageStore(t, filepath.Join(l.dir, "state", "state.db"))
	l.open()
	defer l.close()
	virtual := hanging{asked: make(chan struct{})}
	l.drivers[spec.KVM] = constructors{driver: func(*host) (driver, error) { return driver{Broker: virtual}, nil }}
	ctx, cancel := context.WithCancel(t.Context())
	scanned := make(chan error, 2)
	go func() { scanned <- l.learn(ctx, spec.KVM) }()
	<-virtual.asked
	go func() { scanned <- l.learn(t.Context(), spec.LXD) }()
	select {
	case err := <-scanned:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("lxd waits for kvm")
	}
	if r := l.record(); r.Withheld(spec.LXD) != "" || r.Withheld(spec.KVM) == "" || !strings.HasPrefix(r.Withheld(""), "kvm ") {
		t.Errorf("lxd: %q, kvm: %q, storage: %q", r.Withheld(spec.LXD), r.Withheld(spec.KVM), r.Withheld(""))
	}
	cancel()
	if err := <-scanned; err == nil {
		t.Error("the hanging scan succeeded")
	}
}
