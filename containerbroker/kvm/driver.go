// Package kvm drives the local libvirt over its unix socket. It makes two calls
// for a listing, and listens to libvirt's events to notice changes. Besides the
// socket it uses the files of images and consoles, which need root, and some
// files in /run and /proc if it can read them.
package kvm

import (
	"cmp"
	"log/slog"
	"sync"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/internal/flight"
	"hostler/internal/kvm/rpc"
	"hostler/internal/run"
)

// Options configures a Driver. Zero durations take the defaults.
type Options struct {
	// Socket is the path of libvirt's unix socket.
	Socket string
	// Namespace is the agent's namespace, which is part of every stamp.
	Namespace string
	// Accelerator returns AcceleratorKVM or AcceleratorTCG, whichever was
	// proven to run guests on this host. nil means TCG, which runs everywhere.
	Accelerator func() string
	// Pool is the storage pool of machines that name no pool; default
	// "default".
	Pool string
	// Network is libvirt's network for machines without declared interfaces;
	// default "default".
	Network string
	// Images turns references into files. If it is nil, no image can be
	// fetched.
	Images images.Provider
	// Runner runs the program that converts images that are not qcow2. If it is
	// nil, such images are refused.
	Runner run.Runner
	// RuntimeDir is where libvirt keeps the process ids of its guests; default
	// /run/libvirt/qemu. Proc is the proc filesystem with the host's ARP table;
	// default /proc.
	RuntimeDir, Proc string
	// Logger may be nil.
	Logger *slog.Logger
	// RequestTimeout bounds one call with its answer; default 30 s.
	RequestTimeout time.Duration
	// StartTimeout bounds the definition of a domain and the start of a guest,
	// during which libvirt may probe QEMU again; default 2 min.
	StartTimeout time.Duration
	// AgentTimeout is how long a guest agent may take to answer after the
	// guest's start; default 10 min, for a slow host without KVM. SeenTimeout
	// is how long the agent may take after the guest's address was first seen
	// from the host; default 90 s.
	AgentTimeout, SeenTimeout time.Duration
	// AddressTimeout is how long a guest with a DHCP client may take to get an
	// address; default 60 s.
	AddressTimeout time.Duration
	// UnplugTimeout is how long a guest may take to release a device; default
	// 20 s.
	UnplugTimeout time.Duration
}

// The accelerators that Options.Accelerator may return.
const (
	AcceleratorKVM = "kvm"
	AcceleratorTCG = "tcg"
)

// Driver is the broker of one local libvirt.
type Driver struct {
	opts Options
	log  *slog.Logger

	mu      sync.Mutex
	cached  *session
	making  map[string]int // names that this process is creating
	learned map[string]lesson
	keys    map[string][]byte // the keys of records and digests, by namespace

	flights flight.Group[containerbroker.Report, string]
	swept   sync.Once // before the first image is made

	// asking is a semaphore. It bounds how many guests' agents are asked for
	// their addresses at the same time. askWithin bounds the time that a
	// listing spends on asking.
	asking    chan struct{}
	askWithin time.Duration

	keyed sync.Mutex

	lateCalls rpc.LateCalls // its pool also serves borrow()

	pools      recent[pool]           // without a connection
	capacities recent[int64]          // of images, by path
	made       recent[libvirt.Domain] // whose creation has just ended
	begun      recent[libvirt.Domain] // whose first start has just ended
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

// New returns a driver. It opens no connection; each call connects as needed,
// so libvirt may restart at any time.
func New(opts Options) *Driver {
	opts.RequestTimeout = cmp.Or(opts.RequestTimeout, 30*time.Second)
	opts.StartTimeout = cmp.Or(opts.StartTimeout, 2*time.Minute)
	opts.AgentTimeout = cmp.Or(opts.AgentTimeout, 10*time.Minute)
	opts.SeenTimeout = cmp.Or(opts.SeenTimeout, 90*time.Second)
	opts.AddressTimeout = cmp.Or(opts.AddressTimeout, time.Minute)
	opts.UnplugTimeout = cmp.Or(opts.UnplugTimeout, 20*time.Second)
	opts.Pool = cmp.Or(opts.Pool, "default")
	opts.Network = cmp.Or(opts.Network, "default")
	opts.RuntimeDir = cmp.Or(opts.RuntimeDir, "/run/libvirt/qemu")
	opts.Proc = cmp.Or(opts.Proc, "/proc")
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Driver{
		opts: opts, log: log, making: map[string]int{}, learned: map[string]lesson{}, keys: map[string][]byte{}, flights: flight.Group[containerbroker.Report, string]{Log: log},
		asking: make(chan struct{}, askedAtOnce), askWithin: listAnswer + time.Second,
	}
}

// domainType returns libvirt's domain type for the proven accelerator.
func (d *Driver) domainType() string {
	if d.opts.Accelerator != nil && d.opts.Accelerator() == AcceleratorKVM {
		return "kvm"
	}
	return "qemu"
}
