package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// metrics holds the agent's counters, which /metrics on the socket serves.
type metrics struct {
	registry   *prometheus.Registry
	passes     *prometheus.CounterVec
	passTime   *prometheus.HistogramVec
	operations *prometheus.CounterVec
	opTime     *prometheus.HistogramVec
	lockWait   prometheus.Histogram
	storeWait  prometheus.Histogram
}

func newMetrics(version string) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
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
		lockWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "hostler_host_lock_wait_seconds", Help: "How long the host lock was waited for.", Buckets: prometheus.ExponentialBuckets(0.01, 5, 7),
		}),
	}
	m.storeWait = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "hostler_store_write_seconds", Help: "How long a write to the store took, until it was durable.", Buckets: prometheus.ExponentialBuckets(0.0002, 4, 9),
	})
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "hostler_build_info", Help: "The version that runs; always 1."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(m.passes, m.passTime, m.operations, m.opTime, m.lockWait, m.storeWait, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
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

func newStateCollector(store state.Store) stateCollector {
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

// timedStore measures the time of writes, including the wait for the disk.
type timedStore struct {
	state.Backend
	wait prometheus.Histogram
}

// Write implements state.Store.
func (t timedStore) Write(ctx context.Context, mode state.Mode, writes ...state.Write) ([]state.Result, error) {
	began := time.Now()
	defer func() { t.wait.Observe(time.Since(began).Seconds()) }()
	return t.Backend.Write(ctx, mode, writes...)
}

// workerMetrics implements reconcile.Metrics for one worker.
type workerMetrics struct {
	*metrics
	sup    *supervisor
	worker string
}

// Pass counts a pass.
func (m workerMetrics) Pass(took time.Duration, err error) {
	m.sup.passed(m.worker)
	m.pass(took.Seconds(), err != nil)
}

// Operation counts an operation.
func (m workerMetrics) Operation(action string, took time.Duration, err error) {
	m.operation(action, took.Seconds(), err != nil)
}

func (m workerMetrics) pass(seconds float64, failed bool) {
	m.passes.WithLabelValues(m.worker, result(failed)).Inc()
	m.passTime.WithLabelValues(m.worker).Observe(seconds)
}

func (m workerMetrics) operation(action string, seconds float64, failed bool) {
	m.operations.WithLabelValues(m.worker, action, result(failed)).Inc()
	m.opTime.WithLabelValues(m.worker, action).Observe(seconds)
}
