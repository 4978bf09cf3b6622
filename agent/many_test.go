package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"hostler/agent/client"
	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/workerapi"
	"hostler/containerbroker/brokertest"
	"hostler/containerbroker/images"
	"hostler/hostnet/guard"
	"hostler/initialisers"
	"hostler/internal/fault"
)

// numbered returns documents that declare machines m0, m1 and so on.
func numbered(n int) (docs []client.Document) {
	const each = 2500 // a document has at most 256 KiB
	for from := 0; from < n; from += each {
		var text strings.Builder
		fmt.Fprintf(&text, "version: 1\nname: many%d\nmachines:\n", from)
		for i := from; i < min(from+each, n); i++ {
			fmt.Fprintf(&text, "  m%d: {type: lxd, image: a/1}\n", i)
		}
		docs = append(docs, client.Document{Name: fmt.Sprintf("many%d.yaml", from), Content: text.String()})
	}
	return docs
}

// takes sets the number of machines that the host takes.
func (l *lossyHost) takes(most int) {
	l.t.Helper()
	if err := l.object().Update(l.t.Context(), func(r *spec.HostRecord, _ *spec.HostStatus) { r.Config.MaxMachines = most }); err != nil {
		l.t.Fatal(err)
	}
}

// present is the initialiser of a type that is set up.
type present struct{}

func (present) Satisfied(context.Context) (bool, string)       { return true, "" }
func (present) Supported(context.Context) (bool, string)       { return true, "" }
func (present) Initialise(context.Context, func(string)) error { return nil }

// More machines in one apply than the host takes are refused with their number,
// and change nothing. As many as it takes do not jam the store: other applies
// and deletions are answered while the provisioner makes the machines.
// Attack: store
func TestManyMachinesDoNotJamTheStore(t *testing.T) {
	l := newLossyHost(t)
	l.disk.well.Store(true)
	l.open()
	defer l.close()
	l.guard = guard.New(guard.Options{Dir: t.TempDir(), Log: l.logger})
	var err error
	if l.images, err = images.Open(images.Options{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	l.initialisers = map[spec.ContainerType]initialisers.Initialiser{spec.LXD: present{}}
	socket := l.serve()
	admin := client.New(socket)
	defer admin.Close()

	if err := l.learn(t.Context(), spec.LXD); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	workers := workerapi.NewStore(socket, string(spec.LXD))
	done := make(chan error, 1)
	go func() {
		done <- provision(ctx, spec.LXD, reconcile.Common{Store: workers, Metrics: &passes{}, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}, l.lxd, l.lxd, l.config())
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		workers.Close()
	}()

	_, err = admin.Apply(t.Context(), client.ApplyRequest{Documents: numbered(10_000)})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "10000 machines") || !strings.Contains(err.Error(), "at most 2000") {
		t.Fatalf("10,000 machines: %v", err)
	}
	// answered fails if the calls wait for the many machines.
	answered := func(name string) {
		t.Helper()
		began := time.Now()
		content := "version: 1\nname: " + name + "\nmachines: {" + name + ": {type: lxd, image: a/1}}\n"
		if _, err := admin.Apply(t.Context(), client.ApplyRequest{Documents: []client.Document{{Name: name + ".yaml", Content: content}}}); err != nil {
			t.Fatal(err)
		}
		outcomes, err := admin.Delete(t.Context(), []string{"machine/" + name})
		if err != nil || len(outcomes) != 1 {
			t.Fatalf("deleted: %+v, %v", outcomes, err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("an apply and a deletion took %s", took)
		}
	}
	answered("after")

	l.takes(manyMachines + 10)
	if _, err := admin.Apply(t.Context(), client.ApplyRequest{Documents: numbered(manyMachines)}); err != nil {
		t.Fatal(err)
	}
	atWork := 0
	for range 5 {
		if l.lxd.Calls(brokertest.Create) < manyMachines {
			atWork++
		}
		answered("meanwhile")
	}
	if atWork == 0 {
		t.Error("all machines were made before anything else was asked for")
	}
	// Some are enough: each pass looks at all machines, so all take long.
	until(t, "the first of the machines", func() bool { return len(l.lxd.Names()) >= 50 })
	answered("later")
}
