package api

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

// Guard prevents changes of the host's own network from locking out the users.
type Guard interface {
	// Confirm keeps the change that waits for confirmation, Revert undoes the
	// armed change; both return its object, KIND/NAME. Without such a change
	// they return fault.NotFound. Confirm returns fault.Conflict while the
	// change is still being made.
	Confirm(ctx context.Context) (object string, err error)
	Revert(ctx context.Context) (object string, err error)
	// Remember stores the address from which the user who makes a change is
	// connected; an invalid address means none.
	Remember(client netip.Addr)
}

func (s *Server) confirm(ctx context.Context, _ *struct{}) (*out[client.GuardAnswer], error) {
	object, err := s.o.Service.Guard.Confirm(ctx)
	return answer(client.GuardAnswer{Object: object}, err)
}

func (s *Server) revert(ctx context.Context, _ *struct{}) (*out[client.GuardAnswer], error) {
	object, err := s.o.Service.Guard.Revert(ctx)
	return answer(client.GuardAnswer{Object: object}, err)
}

// The bounds of the time that a change may wait for confirmation.
const (
	minConfirm = spec.Duration(time.Second)
	maxConfirm = spec.Duration(24 * time.Hour)
)

// confirming makes the documents' changes wait for confirmation.
func confirming(docs []declare.Document, text string) error {
	if text == "" {
		return nil
	}
	d, err := spec.ParseDuration(text)
	if err != nil || d < minConfirm || d > maxConfirm {
		return fault.New(fault.Invalid, "cannot wait %q for a confirmation: use a duration from %s to %s, like 5m", fault.Clip(text, 32), minConfirm, maxConfirm)
	}
	for i := range docs {
		docs[i].Confirm = d
	}
	return nil
}

// ancestors bounds the processes that clientOf examines: command, sudo, shell,
// ssh.
const ancestors = 16

// clientOf returns the address of the SSH client whose user runs the process.
// It is taken from the variable SSH_CONNECTION of the process or of an
// ancestor, because sudo removes the variable. Without SSH the address is
// invalid.
func clientOf(pid int32) netip.Addr {
	for range ancestors {
		dir := "/proc/" + strconv.Itoa(int(pid))
		environ, err := os.ReadFile(dir + "/environ")
		if err != nil || pid <= 1 {
			return netip.Addr{}
		}
		for variable := range bytes.SplitSeq(environ, []byte{0}) {
			if value, ok := strings.CutPrefix(string(variable), "SSH_CONNECTION="); ok {
				client, _, _ := strings.Cut(value, " ")
				address, err := netip.ParseAddr(client)
				if err != nil {
					return netip.Addr{}
				}
				return address.WithZone("")
			}
		}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			return netip.Addr{}
		}
		// The name in parentheses may contain any character (proc(5)).
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 {
			return netip.Addr{}
		}
		parent, err := strconv.ParseInt(fields[1], 10, 32)
		if err != nil {
			return netip.Addr{}
		}
		pid = int32(parent)
	}
	return netip.Addr{}
}
