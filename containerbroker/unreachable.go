package containerbroker

import (
	"errors"

	"hostler/internal/fault"
)

// unreachable is the error of a hypervisor that does not answer. cause is the
// library's error, for errors.Is and for logs at level debug.
type unreachable struct {
	hypervisor, unit string
	cause            error
}

func (u *unreachable) Error() string {
	return u.short() + "; " + u.remedy()
}

func (u *unreachable) short() string { return u.hypervisor + " does not answer" }

func (u *unreachable) remedy() string { return "start it: systemctl start " + u.unit }

func (u *unreachable) Unwrap() error { return u.cause }

// Unreachable returns the transient error of a hypervisor that does not answer.
// unit is the systemd unit that starts it.
func Unreachable(hypervisor, unit string, cause error) error {
	return fault.Wrap(fault.Transient, &unreachable{hypervisor, unit, cause})
}

// Unanswered returns a short text, e.g. "LXD does not answer", if err was made
// by Unreachable(), else "".
func Unanswered(err error) string {
	var u *unreachable
	if errors.As(err, &u) {
		return u.short()
	}
	return ""
}

// Remedy returns the command that starts the hypervisor if err was made by
// Unreachable(), else "".
func Remedy(err error) string {
	var u *unreachable
	if errors.As(err, &u) {
		return u.remedy()
	}
	return ""
}
