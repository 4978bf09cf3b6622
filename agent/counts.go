package agent

import (
	"context"
	"sync"
	"time"

	"hostler/agent/api"
	"hostler/agent/provisioner"
	"hostler/agent/spec"
)

// counts are the passes and operations of a worker in a process of its own
// until the agent is told of them. It implements provisioner.Metrics.
type counts struct {
	news chan struct{}

	mu   sync.Mutex
	told api.WorkerCounts
}

// countsEvery is how often at most the agent is told; nothing happened, nothing
// is told.
const countsEvery = 5 * time.Second

func newCounts() *counts { return &counts{news: make(chan struct{}, 1)} }

// Pass counts a pass.
func (c *counts) Pass(took time.Duration, err error) {
	c.add(func(t *api.WorkerCounts) *[]api.WorkerCount { return &t.Passes }, api.WorkerCount{Seconds: took.Seconds(), Failed: err != nil})
}

// Operation counts an operation.
func (c *counts) Operation(action string, took time.Duration, err error) {
	c.add(func(t *api.WorkerCounts) *[]api.WorkerCount { return &t.Operations }, api.WorkerCount{Action: action, Seconds: took.Seconds(), Failed: err != nil})
}

// add drops what the agent, which must have been away for long, cannot be told
// at once.
func (c *counts) add(list func(*api.WorkerCounts) *[]api.WorkerCount, n api.WorkerCount) {
	n.Seconds = max(n.Seconds, 0) // of a clock that was set back
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := list(&c.told); len(*l) < api.MaxCounts {
		*l = append(*l, n)
	}
	select {
	case c.news <- struct{}{}:
	default:
	}
}

func (c *counts) take() api.WorkerCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.told
	c.told = api.WorkerCounts{}
	return t
}

// tell tells the agent what there is, until ctx ends. What it did not take, as
// while it is started anew, is told with what comes next.
func (c *counts) tell(ctx context.Context, send func(context.Context, api.WorkerCounts) error, every time.Duration) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.news:
		}
		if t := c.take(); send(ctx, t) != nil {
			c.mu.Lock()
			c.told.Passes = bounded(append(t.Passes, c.told.Passes...))
			c.told.Operations = bounded(append(t.Operations, c.told.Operations...))
			c.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func bounded(l []api.WorkerCount) []api.WorkerCount { return l[:min(len(l), api.MaxCounts)] }

// count takes what a type's provisioner tells. Its words are not trusted: an
// action that there is not is counted as "other".
func (h *host) count(t spec.ContainerType, n api.WorkerCounts) {
	m := workerMetrics{h.metrics, h.sup, "provisioner-" + string(t)}
	for _, p := range n.Passes {
		m.pass(p.Seconds, p.Failed)
	}
	for _, o := range n.Operations {
		action := "other"
		if provisioner.Action(o.Action).Known() {
			action = o.Action
		}
		m.operation(action, o.Seconds, o.Failed)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.passes == nil {
		h.passes = map[string]int64{}
	}
	h.passes[m.worker] += int64(len(n.Passes))
}
