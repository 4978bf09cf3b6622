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

// Peer is the process at the other end of a connection, as the kernel reports
// it.
type Peer struct {
	PID    int32
	UID    uint32
	GID    uint32
	Groups []uint32
	// Exe is the peer's program for the audit log; empty if the process is gone.
	Exe string
}

// peerOf reads the peer from the kernel. The kernel records the ids at connect
// time, so later changes have no effect.
func peerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("cannot look at the peer: %w", err)
	}
	var p Peer
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
		return Peer{}, fmt.Errorf("cannot look at the peer: %w", err)
	}
	p.Exe, _ = os.Readlink("/proc/" + strconv.Itoa(int(p.PID)) + "/exe")
	return p, nil
}

// peerGroups reads the supplementary groups. ERANGE returns the required size
// (the kernel's limit is 65,536 groups).
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

// role groups the rights of a peer.
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
	// rightRead: every reader and admin.
	rightRead right = "read"
	// rightConsole: admins, and readers if the host's configuration opens consoles
	// to them.
	rightConsole right = "console"
	// rightChange: admins.
	rightChange right = "change"
	// rightWorker: admins, and the provisioners' own users for their container
	// type.
	rightWorker right = "worker"
)

// allows reports whether a role has a right. Server.allows adds the right that
// the host's configuration grants.
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
	Peer
	role role
	// containerType limits a worker to its container type; empty: no limit.
	containerType spec.ContainerType
}

// grouper resolves a group's name; a group that does not exist gives no rights.
type grouper func(name string) (uint32, error)

// callerOf determines the role of a peer.
func callerOf(p Peer, workers map[uint32]spec.ContainerType, adminGroup, readGroup string, gid grouper) caller {
	in := func(name string) bool {
		if name == "" {
			return false
		}
		g, err := gid(name)
		return err == nil && (p.GID == g || slices.Contains(p.Groups, g))
	}
	t, worker := workers[p.UID]
	switch {
	case p.UID == 0:
		return caller{Peer: p, role: roleAdmin}
	case worker:
		return caller{Peer: p, role: roleWorker, containerType: t}
	case in(adminGroup):
		return caller{Peer: p, role: roleAdmin}
	case in(readGroup):
		return caller{Peer: p, role: roleReader}
	default:
		return caller{Peer: p, role: roleStranger}
	}
}

type callerKey struct{}

func withCaller(ctx context.Context, c caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// callerFrom returns the caller of a request; a stranger if none is known.
func callerFrom(ctx context.Context) caller {
	c, ok := ctx.Value(callerKey{}).(caller)
	if !ok {
		return caller{role: roleStranger}
	}
	return c
}
