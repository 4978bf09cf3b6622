// Package lxd drives the local LXD or Incus over its unix socket. It sends one
// HTTP request for a listing, waits for operations with long polls, and reads
// the event stream to notice changes. "LXD" in the comments means either
// daemon; Dialect holds their differences.
package lxd

import (
	"cmp"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/internal/flight"
)

// Options configures a Driver. Zero durations take the defaults.
type Options struct {
	// Dialect says which daemon it is; default LXD.
	Dialect Dialect
	// Socket is the path of the daemon's unix socket.
	Socket string
	// Namespace is the agent's namespace, which marks hostler's images.
	Namespace string
	// Profile is a profile that new instances get after the default profile, if
	// LXD has it and hostler made it. It is empty if there is none.
	Profile string
	// ProfileTime is how long new instances use the same answer about that
	// profile; default 5 s.
	ProfileTime time.Duration
	// Images turns references into files. If it is nil, only LXD's own images
	// can be used.
	Images images.Provider
	// Logger may be nil.
	Logger *slog.Logger
	// RequestTimeout bounds one request with its answer; default 30 s.
	RequestTimeout time.Duration
	// OperationTimeout bounds an LXD operation; default 10 min.
	OperationTimeout time.Duration
	// EventTimeout is how long the event stream may be silent, including
	// answers to pings, before it counts as lost; default 6.3 s.
	EventTimeout time.Duration
	// ListTimeout is the time after which a slow listing makes the driver
	// check whether LXD is alive. It is also the time limit of that check;
	// default 1.2 s.
	ListTimeout time.Duration
	// RetryDelay is the delay between attempts to delete a busy instance;
	// default 2 s.
	RetryDelay time.Duration
	// StableTime is how long an instance must have run before it counts as
	// stable; default 250 ms.
	StableTime time.Duration
	// AddressTimeout is how long a guest with a DHCP client may take to get an
	// address; default 30 s.
	AddressTimeout time.Duration
	// Proc is the proc filesystem with the host's processes; default /proc.
	// Cgroup is the folder of the host's cgroups; default /sys/fs/cgroup.
	Proc, Cgroup string
}

// Driver is the broker of one local LXD or Incus.
type Driver struct {
	opts Options
	log  *slog.Logger

	flights flight.Group[containerbroker.Report, string]

	// silent is true if LXD left the last ping of an event stream unanswered.
	silent atomic.Bool
	inits  inits
	own    ownChanges
	// results passes on the ends of operations from the event stream.
	results results
	// extra says when Options.Profile was last read, and whether hostler had
	// made it.
	extra struct {
		sync.Mutex
		looked time.Time
		ours   bool
	}
	// aliases holds a foundAlias for each name.
	aliases sync.Map
	// limitless maps the name of a pool to whether the pool ignores size
	// limits.
	limitless sync.Map
	// logged holds the keys of the messages that once() has already logged.
	logged sync.Map
}

var (
	_ containerbroker.Broker         = (*Driver)(nil)
	_ containerbroker.Differ         = (*Driver)(nil)
	_ containerbroker.EventSource    = (*Driver)(nil)
	_ containerbroker.Stamper        = (*Driver)(nil)
	_ containerbroker.ReadinessProbe = (*Driver)(nil)
	_ containerbroker.GuestAccess    = (*Driver)(nil)
	_ containerbroker.ImageStore     = (*Driver)(nil)
)

// New returns a driver. It opens no connection; every operation connects as
// needed, so LXD may restart at any time.
func New(opts Options) *Driver {
	opts.RequestTimeout = cmp.Or(opts.RequestTimeout, 30*time.Second)
	opts.OperationTimeout = cmp.Or(opts.OperationTimeout, 10*time.Minute)
	opts.ProfileTime = cmp.Or(opts.ProfileTime, 5*time.Second)
	opts.EventTimeout = cmp.Or(opts.EventTimeout, 6300*time.Millisecond)
	opts.ListTimeout = cmp.Or(opts.ListTimeout, 1200*time.Millisecond)
	opts.RetryDelay = cmp.Or(opts.RetryDelay, 2*time.Second)
	opts.StableTime = cmp.Or(opts.StableTime, 250*time.Millisecond)
	opts.AddressTimeout = cmp.Or(opts.AddressTimeout, 30*time.Second)
	if opts.Dialect.Name == "" {
		opts.Dialect = LXD
	}
	opts.Proc, opts.Cgroup = cmp.Or(opts.Proc, "/proc"), cmp.Or(opts.Cgroup, "/sys/fs/cgroup")
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Driver{opts: opts, log: log, flights: flight.Group[containerbroker.Report, string]{Log: log}}
}
