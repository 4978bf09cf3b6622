// Package lxd drives the local LXD over its unix socket: one HTTP request per
// listing, long polls for operations, the event stream for wake-ups.
package lxd

import (
	"log/slog"
	"sync"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/images"
)

// Options are what a driver needs to know. Zero durations take the defaults.
type Options struct {
	// Socket is the path of LXD's unix socket.
	Socket string
	// Namespace is that of the agent; it marks images as ours.
	Namespace string
	// Profile is one that new instances have behind the default profile where
	// LXD has it; empty: none.
	Profile string
	// Images turns references into files; nil: only LXD's own images.
	Images images.Provider
	// Logger may be nil.
	Logger *slog.Logger
	// RequestTimeout bounds one request with its answer; default 30 s.
	RequestTimeout time.Duration
	// OperationTimeout bounds an LXD operation; default 10 min.
	OperationTimeout time.Duration
	// EventTimeout is how long the event stream may be silent, answers to our
	// pings included, before it counts as lost; default 5 s.
	EventTimeout time.Duration
	// ListPatience is after what time LXD is asked, while it lists, whether it
	// lives, and how long it may take to say so; default 1.5 s.
	ListPatience time.Duration
	// RetryDelay stands between tries to delete a busy instance; default 2 s.
	RetryDelay time.Duration
	// SettleTime is how long an instance must have run before it counts as
	// staying so; default 250 ms.
	SettleTime time.Duration
	// AddressTimeout is how long a guest with a DHCP client is given to get
	// an address; default 30 s.
	AddressTimeout time.Duration
	// Proc is where the host's processes are seen; default /proc.
	Proc string
}

// Driver is the broker of one local LXD.
type Driver struct {
	opts Options
	log  *slog.Logger

	mu      sync.Mutex
	flights map[string]*flight

	inits inits
	// limitless says by pool whether its root disks have no limits.
	limitless sync.Map
	// told is what once has told.
	told sync.Map
}

var (
	_ containerbroker.Broker         = (*Driver)(nil)
	_ containerbroker.Differ         = (*Driver)(nil)
	_ containerbroker.EventSource    = (*Driver)(nil)
	_ containerbroker.Stamper        = (*Driver)(nil)
	_ containerbroker.ReadinessProbe = (*Driver)(nil)
	_ containerbroker.Guest          = (*Driver)(nil)
	_ containerbroker.ImageStore     = (*Driver)(nil)
)

// New returns a driver. It connects to nothing: every operation dials anew, so
// that an LXD which comes and goes needs no care.
func New(opts Options) *Driver {
	byDefault := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	byDefault(&opts.RequestTimeout, 30*time.Second)
	byDefault(&opts.OperationTimeout, 10*time.Minute)
	byDefault(&opts.EventTimeout, 5*time.Second)
	byDefault(&opts.ListPatience, 1500*time.Millisecond)
	byDefault(&opts.RetryDelay, 2*time.Second)
	byDefault(&opts.SettleTime, 250*time.Millisecond)
	byDefault(&opts.AddressTimeout, 30*time.Second)
	if opts.Proc == "" {
		opts.Proc = "/proc"
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Driver{opts: opts, log: log, flights: map[string]*flight{}}
}
