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
	// Confirm makes the change that waits for confirmation final. Revert undoes
	// the armed change. Both return the object of the change as KIND/NAME, or
	// fault.NotFound without such a change. Confirm returns fault.Conflict
	// while the change is still being made.
	Confirm(ctx context.Context) (object string, err error)
	Revert(ctx context.Context) (object string, err error)
	// Remember stores the address from which the user who makes a change is
	// connected. An invalid address means that it is unknown.
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

// These are the shortest and longest time that a change can wait for
// confirmation.
const (
	minConfirm = spec.Duration(time.Second)
	maxConfirm = spec.Duration(24 * time.Hour)
)

// confirming makes the documents' changes wait for confirmation for the
// duration in text. It does nothing if text is "".
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

// ancestors bounds the number of processes that clientOf examines, e.g. the
// command, sudo, the shell and sshd.
const ancestors = 16

// clientOf returns the address of the SSH client whose user runs the process,
// or an invalid address if there is none. It reads SSH_CONNECTION from the
// environment of the process or of an ancestor, because sudo removes this
// variable.
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
