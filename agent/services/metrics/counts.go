package metrics

import (
	"context"
	"sync"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/workerapi"
)

// Counts collects the passes and operations of a worker in a separate process
// until the worker sends them to the agent. It implements reconcile.Metrics.
type Counts struct {
	news chan struct{}

	mu     sync.Mutex
	unsent workerapi.Counts
}

// CountsEvery is the shortest time between two reports to the agent.
const CountsEvery = 5 * time.Second

// NewCounts returns empty counts.
func NewCounts() *Counts { return &Counts{news: make(chan struct{}, 1)} }

// Pass counts a pass.
func (c *Counts) Pass(took time.Duration, err error) {
	c.add(func(t *workerapi.Counts) *[]workerapi.Count { return &t.Passes }, workerapi.Count{Seconds: took.Seconds(), Failed: err != nil})
}

// Operation counts an operation.
func (c *Counts) Operation(action string, took time.Duration, err error) {
	c.add(func(t *workerapi.Counts) *[]workerapi.Count { return &t.Operations }, workerapi.Count{Action: action, Seconds: took.Seconds(), Failed: err != nil})
}

// add adds a count. If the list is full because the agent has not answered for
// a long time, add drops the count.
func (c *Counts) add(list func(*workerapi.Counts) *[]workerapi.Count, n workerapi.Count) {
	n.Seconds = max(n.Seconds, 0) // negative after the clock was set back
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := list(&c.unsent); len(*l) < workerapi.MaxCounts {
		*l = append(*l, n)
	}
	select {
	case c.news <- struct{}{}:
	default:
	}
}

func (c *Counts) take() workerapi.Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.unsent
	c.unsent = workerapi.Counts{}
	return t
}

// Send sends the counts to the agent until ctx ends. If a report fails, e.g.
// while the agent restarts, Send adds its counts to the next report.
func (c *Counts) Send(ctx context.Context, send func(context.Context, workerapi.Counts) error, every time.Duration) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.news:
		}
		if t := c.take(); send(ctx, t) != nil {
			c.mu.Lock()
			c.unsent.Passes = bounded(append(t.Passes, c.unsent.Passes...))
			c.unsent.Operations = bounded(append(t.Operations, c.unsent.Operations...))
			c.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func bounded(l []workerapi.Count) []workerapi.Count { return l[:min(len(l), workerapi.MaxCounts)] }

// Passes returns the number of passes that a worker in a separate process
// reported.
func (m *Metrics) Passes(worker string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.received[worker]
}

// Add adds the counts that a worker in a separate process sent. Unknown actions
// count as "other", because the sender is not trusted.
func (m *Metrics) Add(worker string, n workerapi.Counts) {
	m.mu.Lock()
	m.received[worker] += int64(len(n.Passes))
	m.mu.Unlock()
	w := Worker{Metrics: m, Name: worker}
	for _, p := range n.Passes {
		w.pass(p.Seconds, p.Failed)
	}
	for _, o := range n.Operations {
		action := "other"
		if provisioner.Action(o.Action).Known() {
			action = o.Action
		}
		w.operation(action, o.Seconds, o.Failed)
	}
}
