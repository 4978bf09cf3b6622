package loop

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
)

// systemd reads the number of the loop driver when it starts hostlerd, and
// denies the devices of a driver that comes later.
func TestDeniedDeviceNamesTheRemedy(t *testing.T) {
	denied := openError(&os.PathError{Op: "open", Path: "/dev/loop3", Err: unix.EPERM})
	if !fault.Is(denied, fault.NeedsOperator) || !errors.Is(denied, unix.EPERM) ||
		!strings.Contains(denied.Error(), "open /dev/loop3: operation not permitted; if hostlerd started before the kernel had loop devices, restart it: systemctl restart hostlerd") {
		t.Errorf("got %v", denied)
	}
	other := &os.PathError{Op: "open", Path: "/dev/loop3", Err: unix.EACCES}
	if got := openError(other); fault.Is(got, fault.NeedsOperator) || got.Error() != other.Error() {
		t.Errorf("got %v", got)
	}
}
