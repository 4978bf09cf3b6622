// Package metrics counts the agent's passes and operations, and the waits for
// the store and the host lock.
package metrics

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// Metrics holds the agent's counters, which /metrics on the socket serves.
type Metrics struct {
	Registry   *prometheus.Registry
	passes     *prometheus.CounterVec
	passTime   *prometheus.HistogramVec
	operations *prometheus.CounterVec
	opTime     *prometheus.HistogramVec
	// LockWait and StoreWait count seconds.
	LockWait  prometheus.Histogram
	StoreWait prometheus.Histogram

	mu sync.Mutex
	// received counts the passes of workers in separate processes, by name.
	received map[string]int64
}

// New returns the counters of an agent.
func New(version string) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(), received: map[string]int64{},
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hostler_reconcile_passes_total", Help: "Passes made, by worker and result.",
		}, []string{"worker", "result"}),
		passTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hostler_reconcile_pass_seconds", Help: "How long a pass took.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"worker"}),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hostler_operations_total", Help: "Operations on instances, by worker, action and result.",
		}, []string{"worker", "action", "result"}),
		opTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hostler_operation_seconds", Help: "How long an operation took.", Buckets: prometheus.ExponentialBuckets(0.05, 3, 9),
		}, []string{"worker", "action"}),
		LockWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "hostler_host_lock_wait_seconds", Help: "How long the host lock was waited for.", Buckets: prometheus.ExponentialBuckets(0.01, 5, 7),
		}),
	}
	m.StoreWait = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "hostler_store_write_seconds", Help: "How long a write to the store took, until it was durable.", Buckets: prometheus.ExponentialBuckets(0.0002, 4, 9),
	})
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "hostler_build_info", Help: "The version that runs; always 1."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	m.Registry.MustRegister(m.passes, m.passTime, m.operations, m.opTime, m.LockWait, m.StoreWait, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// StoreSyncs returns the counter of the store's syncs.
func StoreSyncs(count func() int64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "hostler_store_syncs_total", Help: "Commits of the store that were synced to the disk.",
	}, func() float64 { return float64(count()) })
}

func result(failed bool) string {
	if failed {
		return "error"
	}
	return "ok"
}

// stateCollector counts the machines in the store at each scrape.
type stateCollector struct {
	store  state.Store
	states *prometheus.Desc
	drift  *prometheus.Desc
}

// NewStateCollector returns the collector of the machines' states.
func NewStateCollector(store state.Store) prometheus.Collector {
	return stateCollector{
		store:  store,
		states: prometheus.NewDesc("hostler_machines", "Machines, by type and status.", []string{"type", "status"}, nil),
		drift:  prometheus.NewDesc("hostler_machines_drifted", "Machines that differ from their declarations, by type.", []string{"type"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c stateCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.states
	out <- c.drift
}

// Collect implements prometheus.Collector.
func (c stateCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	objects, _, err := c.store.List(ctx, spec.KindMachine)
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.states, err)
		return
	}
	states, drifted := map[[2]string]int{}, map[string]int{}
	for _, o := range objects {
		var record spec.MachineRecord
		var status spec.MachineStatus
		if json.Unmarshal(o.Spec, &record) != nil || len(o.Status) > 0 && json.Unmarshal(o.Status, &status) != nil {
			continue // the provisioner reports an unreadable record
		}
		t := string(record.Machine.Type)
		states[[2]string{t, string(status.State)}]++
		if status.ObservedGeneration < o.Generation || spec.Differs(status.Conditions) {
			drifted[t]++
		} else if _, ok := drifted[t]; !ok {
			drifted[t] = 0
		}
	}
	for key, n := range states {
		out <- prometheus.MustNewConstMetric(c.states, prometheus.GaugeValue, float64(n), key[0], key[1])
	}
	for t, n := range drifted {
		out <- prometheus.MustNewConstMetric(c.drift, prometheus.GaugeValue, float64(n), t)
	}
}

// TimedStore measures the time of writes, including the wait for the disk.
type TimedStore struct {
	state.Backend
	Wait prometheus.Histogram
}

// Write implements state.Store.
func (t TimedStore) Write(ctx context.Context, mode state.Mode, writes ...state.Write) ([]state.Result, error) {
	began := time.Now()
	defer func() { t.Wait.Observe(time.Since(began).Seconds()) }()
	return t.Backend.Write(ctx, mode, writes...)
}

// Worker implements reconcile.Metrics for one worker.
type Worker struct {
	Metrics *Metrics
	Name    string
}

// Pass counts a pass.
func (m Worker) Pass(took time.Duration, err error) {
	m.pass(took.Seconds(), err != nil)
}

// Operation counts an operation.
func (m Worker) Operation(action string, took time.Duration, err error) {
	m.operation(action, took.Seconds(), err != nil)
}

func (m Worker) pass(seconds float64, failed bool) {
	m.Metrics.passes.WithLabelValues(m.Name, result(failed)).Inc()
	m.Metrics.passTime.WithLabelValues(m.Name).Observe(seconds)
}

func (m Worker) operation(action string, seconds float64, failed bool) {
	m.Metrics.operations.WithLabelValues(m.Name, action, result(failed)).Inc()
	m.Metrics.opTime.WithLabelValues(m.Name, action).Observe(seconds)
}
