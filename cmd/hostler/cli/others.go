package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

// other holds the fields that a follower needs from the row of a network, a
// volume, a filesystem or a declaration.
type other struct {
	Name      string              `json:"name"`
	Life      string              `json:"life"`
	Status    string              `json:"status"`
	Message   string              `json:"message"`
	Observed  bool                `json:"observed"`
	Attempts  int                 `json:"attempts"`
	NextRetry *time.Time          `json:"next-retry"`
	ErrorKind fault.Kind          `json:"error-kind"`
	Attached  []client.Attachment `json:"attachments"`
	Guests    map[string][]string `json:"guests"` // keyed by MACHINE/INTERFACE
}

// usedOnlyBy reports whether the object has users, and all are among the machines.
func (o other) usedOnlyBy(machines []string) bool {
	users := slices.Collect(maps.Keys(o.Guests))
	for _, a := range o.Attached {
		users = append(users, a.Machine)
	}
	return len(users) > 0 && !slices.ContainsFunc(users, func(user string) bool {
		name, _, _ := strings.Cut(user, "/")
		return !slices.Contains(machines, name)
	})
}

// awaitsOperator reports whether the agent's own retries are not worth waiting
// for. A conflict counts only from its second attempt on, because the other
// object may be about to go away.
func (o other) awaitsOperator() bool {
	switch {
	case o.Status != string(spec.StorageError):
		return false
	case o.ErrorKind == fault.NeedsOperator || o.ErrorKind == fault.Invalid:
		return true
	}
	return o.NextRetry == nil || o.ErrorKind == fault.Conflict && o.Attempts > 1
}

// judgeOther returns the verdict on an object that is not a machine, and its
// phase. there is true if the agent has the object. gone is true if the goal is
// the object's removal, which is not waited for while only machines with held steps use
// the object.
func judgeOther(o other, there, gone bool, held []string) (verdict, string) {
	switch {
	case !there && gone:
		return asDeclared, "gone"
	case !there:
		return failed, "is no longer declared"
	case !gone:
		return o.verdict(), o.phase()
	case o.Observed && o.awaitsOperator():
		return failed, o.phase()
	case o.usedOnlyBy(held):
		return asDeclared, o.phase()
	}
	return undecided, o.phase()
}

// verdict decides whether the object is as declared. It is if its status
// belongs to this generation, is not an error, and no retry is due.
func (o other) verdict() verdict {
	stuck := o.Status == string(spec.StorageError)
	for _, a := range o.Attached {
		stuck = stuck || a.Status == spec.StorageError
	}
	switch {
	case !o.Observed:
		return undecided
	case o.awaitsOperator(), stuck && o.NextRetry == nil:
		return failed
	case stuck, o.NextRetry != nil:
		return undecided
	}
	return asDeclared
}

func (o other) phase() string {
	if !o.Observed && o.Status == string(spec.StorageError) {
		return notLooked // the error belongs to an earlier declaration
	}
	text := o.Status
	if text == "" {
		text = "still declared" // only a declaration has no status
	}
	if o.Message != "" {
		text += ": " + o.Message
	}
	for _, a := range o.Attached {
		if a.Status == spec.StorageError {
			text = fmt.Sprintf("%s for machine/%s: %s", a.Status, a.Machine, a.Message)
		}
	}
	return text
}
