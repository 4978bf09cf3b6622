package api

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"hostler/agent/spec"
)

// peerCredentials describes the process at the other end of a connection, as the
// kernel reports it.
type peerCredentials struct {
	PID    int32
	UID    uint32
	GID    uint32
	Groups []uint32
	// Exe is the peer's program for the audit log, or "" if the process is gone.
	Exe string
}

// peerOf reads the peer's credentials from the kernel. The kernel records the
// ids at the time of the connect, so later changes have no effect.
func peerOf(c *net.UnixConn) (peerCredentials, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peerCredentials{}, fmt.Errorf("cannot look at the peer: %w", err)
	}
	var p peerCredentials
	var cerr error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); cerr != nil {
			return
		}
		p.PID, p.UID, p.GID = cred.Pid, cred.Uid, cred.Gid
		p.Groups, cerr = peerGroups(fd)
	})
	if err == nil {
		err = cerr
	}
	if err != nil {
		return peerCredentials{}, fmt.Errorf("cannot look at the peer: %w", err)
	}
	p.Exe, _ = os.Readlink("/proc/" + strconv.Itoa(int(p.PID)) + "/exe")
	return p, nil
}

// peerGroups reads the supplementary groups. If the kernel answers ERANGE, size
// is the required size. The kernel's limit is 65,536 groups.
func peerGroups(fd uintptr) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errno == syscall.ERANGE && int(size) > len(groups)*4:
			groups = make([]uint32, size/4)
		default:
			return nil, errno
		}
	}
}

// role is a set of rights that a peer has.
type role string

const (
	roleStranger role = "stranger"
	roleReader   role = "reader"
	roleWorker   role = "worker"
	roleAdmin    role = "admin"
)

// right is a permission that a route requires.
type right string

const (
	// rightRead is for readers and admins.
	rightRead right = "read"
	// rightConsole is for admins, and for readers if the host's configuration
	// opens consoles to them.
	rightConsole right = "console"
	// rightChange is for admins.
	rightChange right = "change"
	// rightWorker is for admins, and for the provisioners' users within their
	// container type.
	rightWorker right = "worker"
)

// allows reports whether a role has a right without regard to the host's
// configuration. Server.allows adds the right that the configuration grants.
func (r role) allows(need right) bool {
	switch r {
	case roleAdmin:
		return true
	case roleReader:
		return need == rightRead
	case roleWorker:
		return need == rightWorker
	default:
		return false
	}
}

// caller is a peer with its role.
type caller struct {
	peerCredentials
	role role
	// containerType limits a worker to its container type. If empty, there is
	// no limit.
	containerType spec.ContainerType
}

// grouper returns the id of a group, or an error if the group does not exist.
// Such a group gives no rights.
type grouper func(name string) (uint32, error)

// Workers are the users and groups of the provisioners' units, with the type of
// each. A provisioner that runs as root has the group of its type, which it
// cannot leave; the group limits it to the rights of its type's worker.
type Workers struct{ Users, Groups map[uint32]spec.ContainerType }

// caller returns a new connection's peer with its role.
func (o Options) caller(p peerCredentials) caller {
	return callerOf(p, o.Workers(), o.AdminGroup, o.ReadGroup, o.LookupGroup)
}

// callerOf returns the peer with its role.
func callerOf(p peerCredentials, workers Workers, adminGroup, readGroup string, gid grouper) caller {
	in := func(name string) bool {
		if name == "" {
			return false
		}
		g, err := gid(name)
		return err == nil && (p.GID == g || slices.Contains(p.Groups, g))
	}
	t, worker := workers.Users[p.UID]
	for _, g := range append([]uint32{p.GID}, p.Groups...) {
		if of, is := workers.Groups[g]; is && p.UID == 0 {
			t, worker = of, true
		}
	}
	switch {
	case p.UID == 0 && !worker:
		return caller{peerCredentials: p, role: roleAdmin}
	case worker:
		return caller{peerCredentials: p, role: roleWorker, containerType: t}
	case in(adminGroup):
		return caller{peerCredentials: p, role: roleAdmin}
	case in(readGroup):
		return caller{peerCredentials: p, role: roleReader}
	default:
		return caller{peerCredentials: p, role: roleStranger}
	}
}

type callerKey struct{}

func withCaller(ctx context.Context, c caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// callerFrom returns the caller of a request, or a stranger if ctx has no
// caller.
func callerFrom(ctx context.Context) caller {
	c, ok := ctx.Value(callerKey{}).(caller)
	if !ok {
		return caller{role: roleStranger}
	}
	return c
}
