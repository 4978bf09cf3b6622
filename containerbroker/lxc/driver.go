// Package lxc drives classic LXC, i.e. containers of liblxc without a daemon.
// It reads the folders of the instances and the monitors' command sockets, and
// runs the lxc tools only to change something. It uses no cgo and does not link
// liblxc.
package lxc

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/internal/flight"
	"hostler/internal/run"
)

// IDs are the ids of the host that an unprivileged guest's users and groups
// have. The first id belongs to the guest's id 0.
type IDs struct{ FirstUser, FirstGroup, Count uint32 }

// Host runs the programs that need root's full rights. What lxc-start starts
// inherits the restrictions of its caller, so a confined agent lets PID 1 start
// it.
type Host interface {
	// Attach runs a program whose streams are files, and returns its exit code.
	// At the end of ctx it kills the program with its children.
	Attach(ctx context.Context, a run.Attached) (exit int, err error)
}

// Options configures a Driver. Zero values take the defaults.
type Options struct {
	// Path is liblxc's folder of instances; default /var/lib/lxc. The agent's
	// own files are in the folder .NAMESPACE below it.
	Path string
	// Namespace is the agent's namespace.
	Namespace string
	// IDs are the ids of unprivileged guests.
	IDs IDs
	// Bridge is the bridge of machines without declared interfaces; "" means that
	// they have no interface. MTU is the MTU of interfaces that declare none; 0
	// means the bridge's.
	Bridge string
	MTU    int
	// Images turns references into files. If it is nil, no image can be
	// fetched.
	Images images.Provider
	// Host runs the lxc tools, Runner all other programs; default run.Host.
	Host   Host
	Runner run.Runner
	// KeepRemoved is how long the logs of removed instances are kept; 0 means that
	// they go with the instance.
	KeepRemoved time.Duration
	// Proc, Cgroup, Sys and Run are the host's filesystems; default /proc,
	// /sys/fs/cgroup, /sys and /run.
	Proc, Cgroup, Sys, Run string
	// Logger may be nil.
	Logger *slog.Logger
	// AnswerTimeout bounds one question to a monitor; default 1 s. StartTimeout
	// bounds one run of lxc-start; default 1 min. EndTimeout bounds the end of
	// an instance that is stopped by force; default 30 s.
	AnswerTimeout, StartTimeout, EndTimeout time.Duration
	// StableTime is how long an instance must have run before it counts as
	// stable; default 250 ms.
	StableTime time.Duration
	// AddressTimeout is how long a guest with a DHCP client may take to get an
	// address; default 30 s.
	AddressTimeout time.Duration
}

// Driver is the broker of the instances below one folder of liblxc.
type Driver struct {
	opts  Options
	log   *slog.Logger
	locks locks

	flights flight.Group[containerbroker.Report, string]

	inits inits
	// layout is unified(), which does not change while the agent runs.
	layout func() bool

	// table returns the kernel's table of unix sockets, dial connects to a
	// monitor's socket, and rename gives a complete instance its name. Tests
	// replace them.
	table  func() ([]byte, error)
	dial   func(ctx context.Context, socket string) (*net.UnixConn, error)
	rename func(from, to string) error
	// mounted returns the mount points of a guest's init.
	mounted func(ctx context.Context, name string, pid int) (map[string]bool, error)
}

var (
	_ containerbroker.Broker         = (*Driver)(nil)
	_ containerbroker.Differ         = (*Driver)(nil)
	_ containerbroker.EventSource    = (*Driver)(nil)
	_ containerbroker.Stamper        = (*Driver)(nil)
	_ containerbroker.ReadinessProbe = (*Driver)(nil)
	_ containerbroker.GuestAccess    = (*Driver)(nil)
	_ containerbroker.ImageStore     = (*Driver)(nil)
	_ containerbroker.Cleaner        = (*Driver)(nil)
)

// New returns a driver. It does not access the host.
func New(opts Options) *Driver {
	opts.Path = cmp.Or(opts.Path, "/var/lib/lxc")
	opts.Proc = cmp.Or(opts.Proc, "/proc")
	opts.Cgroup = cmp.Or(opts.Cgroup, "/sys/fs/cgroup")
	opts.Sys = cmp.Or(opts.Sys, "/sys")
	opts.Run = cmp.Or(opts.Run, "/run")
	opts.AnswerTimeout = cmp.Or(opts.AnswerTimeout, time.Second)
	opts.StartTimeout = cmp.Or(opts.StartTimeout, time.Minute)
	opts.EndTimeout = cmp.Or(opts.EndTimeout, 30*time.Second)
	opts.StableTime = cmp.Or(opts.StableTime, 250*time.Millisecond)
	opts.AddressTimeout = cmp.Or(opts.AddressTimeout, 30*time.Second)
	if opts.Host == nil {
		opts.Host = run.Host{}
	}
	if opts.Runner == nil {
		opts.Runner = run.Host{}
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Driver{opts: opts, log: log, flights: flight.Group[containerbroker.Report, string]{Log: log}, dial: dial, rename: renameNew}
	d.table, d.mounted = d.readSockets, d.mountPoints
	d.layout = sync.OnceValue(func() bool {
		var s unix.Statfs_t
		return unix.Statfs(opts.Cgroup, &s) == nil && s.Type == unix.CGROUP2_SUPER_MAGIC
	})
	return d
}
