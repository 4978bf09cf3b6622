package agent

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/reconcile"
	"hostler/agent/services/metrics"
	"hostler/agent/services/supervise"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/workerapi"
	"hostler/internal/hosttest"
)

// promised lists the series that dashboards rely on, as beginnings of lines,
// for a machine that runs and a machine that cannot be created.
var promised = []string{
	`hostler_build_info{version="test"} 1`,
	`hostler_reconcile_passes_total{result="ok",worker="provisioner-lxd"} `,
	`hostler_reconcile_pass_seconds_count{worker="provisioner-lxd"} `,
	`hostler_operations_total{action="create",result="ok",worker="provisioner-lxd"} 1`,
	`hostler_operations_total{action="create",result="error",worker="provisioner-lxd"} `,
	`hostler_operation_seconds_count{action="create",worker="provisioner-lxd"} `,
	`hostler_machines{status="running",type="lxd"} 1`,
	`hostler_machines{status="error",type="lxd"} 1`,
	`hostler_machines_drifted{type="lxd"} `,
	`hostler_store_write_seconds_count `,
	`hostler_host_lock_wait_seconds_count 1`,
	`process_cpu_seconds_total `,
}

// The metrics are the same for a provisioner inside the agent and in a separate
// process.
func TestMetricsOfBothPlacements(t *testing.T) {
	running := true
	for name, run := range map[string]func(ctx context.Context, l *lossyHost, socket string) error{
		"inside": func(ctx context.Context, l *lossyHost, _ string) error {
			return provision(ctx, spec.LXD, l.common("provisioner-lxd"), l.lxd, l.lxd, l.config())
		},
		"own process": func(ctx context.Context, l *lossyHost, socket string) error {
			store, counts := workerapi.NewStore(socket, string(spec.LXD)), metrics.NewCounts()
			defer store.Close()
			l.sup.Start(ctx, "counts", func(ctx context.Context) error { return counts.Send(ctx, store.Count, time.Millisecond) })
			return provision(ctx, spec.LXD, reconcile.Common{Store: store, Metrics: counts, Now: time.Now, Logger: l.logger}, l.lxd, l.lxd, l.config())
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLossyHost(t)
			l.disk.well.Store(true)
			l.open()
			defer l.close()
			if err := l.learn(t.Context(), spec.LXD); err != nil {
				t.Fatal(err)
			}
			l.paths.Root, l.sup = t.TempDir(), supervise.New(l.logger, time.Now)
			l.store = metrics.TimedStore{Backend: l.local, Wait: l.metrics.StoreWait}
			l.metrics.Registry.MustRegister(metrics.NewStateCollector(l.local))
			socket := l.serve()
			release, err := l.lock(t.Context(), "test", func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			release()
			l.lxd.NoImage("debian/11")
			for machine, image := range map[string]string{"web": "debian/12", "old": "debian/11"} {
				record := spec.MachineRecord{Machine: spec.Machine{Type: spec.LXD, Image: image, Running: &running}}
				write := state.Write{ID: state.ID{Kind: spec.KindMachine, Name: machine}, Spec: spec.Encode(record), Life: state.Alive}
				if _, err := l.store.Write(t.Context(), state.Atomic, write); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(context.Background())
			l.sup.Start(ctx, "provisioner-lxd", func(ctx context.Context) error { return run(ctx, l, socket) })
			defer l.sup.Wait()
			defer cancel()
			missing := promised
			defer func() {
				if t.Failed() {
					t.Log("missing:", missing)
				}
			}()
			until(t, "every series", func() bool { missing = lacking(scrape(t, socket)); return len(missing) == 0 })
		})
	}
}

// lacking returns the promised series that are missing from a scrape.
func lacking(text string) (missing []string) {
	for _, series := range promised {
		if !strings.Contains("\n"+text, "\n"+series) {
			missing = append(missing, series)
		}
	}
	return missing
}

func scrape(t *testing.T, socket string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://hostler/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := hosttest.Client(socket).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %v %s", resp.StatusCode, err, b)
	}
	return string(b)
}

// An unknown action from a worker creates no new series, since a series for
// each name would fill the memory.
func TestForeignActionsAreCountedAsOther(t *testing.T) {
	h := &host{metrics: metrics.New("test"), logger: slog.New(slog.DiscardHandler)}
	for _, action := range []string{"", "Create", "x\ny", strings.Repeat("x", 1<<16), string(provisioner.ActionCreate)} {
		h.metrics.Add("provisioner-lxd", workerapi.Counts{Operations: []workerapi.Count{{Action: action, Seconds: 1}}})
	}
	families, err := h.metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "hostler_operations_total" && len(f.GetMetric()) != 2 {
			t.Errorf("%d series: %v", len(f.GetMetric()), f)
		}
	}
}
