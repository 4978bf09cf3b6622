// Package alarm provides the timer for the long waits of an idle process.
package alarm

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Alarm is a timer of the kernel. Use it in place of time.Timer for waits of
// seconds that go on while the process is idle.
//
// A timer of the Go runtime ends two waits. The kernel may end the wait for
// files later than asked, by a thousandth of the time waited (fs/select.c,
// select_estimate_accuracy). The runtime's monitor thread wakes in time, and
// then naps for 20 µs again and again until the timer has run, which wakes the
// CPU up to 60 times for each timer. An alarm is a file, so the monitor thread
// sleeps on.
type Alarm struct {
	// C gets a value when the alarm goes off.
	C    <-chan struct{}
	file *os.File
}

// New returns an alarm that is not set. The caller closes it.
func New() (*Alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot make a timer: %w", err)
	}
	c := make(chan struct{}, 1)
	a := &Alarm{C: c, file: os.NewFile(uintptr(fd), "timer")}
	go func() {
		var expirations [8]byte
		for {
			if _, err := a.file.Read(expirations[:]); err != nil {
				return // closed
			}
			select {
			case c <- struct{}{}:
			default: // the last one was not received yet
			}
		}
	}()
	return a, nil
}

// Set has the alarm go off once after d, and no longer at the time set before.
// An alarm that has just gone off may still be received.
func (a *Alarm) Set(d time.Duration) {
	select {
	case <-a.C:
	default:
	}
	// Zero would unset the timer.
	value := unix.ItimerSpec{Value: unix.NsecToTimespec(max(d, 1).Nanoseconds())}
	if c, err := a.file.SyscallConn(); err == nil {
		// It can fail only after Close.
		_ = c.Control(func(fd uintptr) { _ = unix.TimerfdSettime(int(fd), 0, &value, nil) })
	}
}

// Close releases the alarm. No further value is sent.
func (a *Alarm) Close() { _ = a.file.Close() }
