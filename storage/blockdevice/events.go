package blockdevice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Event says that the kernel added, changed or removed a block device. It is
// only a hint to look again.
type Event struct {
	// Action is the kernel's word, such as add, change or remove; "lost" when
	// events were lost, so that every device has to be looked at.
	Action string
	// Name is the kernel's name of the device.
	Name string
}

// uevents is the multicast group of the kernel's own messages; udev repeats
// them in another group.
const uevents = 1

// Events sends events about block devices until ctx ends, then closes the
// channel. A slow receiver misses events, but the channel then holds at least
// one event that makes it look again.
func Events(ctx context.Context) (<-chan Event, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for block devices: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: uevents}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("cannot listen for block devices: %w", err)
	}
	// os.NewFile puts the socket under the runtime's poller, so that closing it
	// ends a read.
	file := os.NewFile(uintptr(fd), "uevents")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("cannot listen for block devices: %w", err)
	}
	events := make(chan Event, 64)
	stop := context.AfterFunc(ctx, func() { _ = file.Close() })
	go func() {
		defer close(events)
		defer file.Close()
		defer stop()
		buffer := make([]byte, 16<<10)
		for {
			var n int
			var from unix.Sockaddr
			var got error
			err := raw.Read(func(fd uintptr) bool {
				n, from, got = unix.Recvfrom(int(fd), buffer, 0)
				return !errors.Is(got, unix.EAGAIN)
			})
			if err != nil {
				return // closed
			}
			var e Event
			switch {
			case errors.Is(got, unix.ENOBUFS):
				e = Event{Action: "lost"}
			case errors.Is(got, unix.EINTR):
				continue
			case got != nil:
				return
			default:
				// Any process may send to the group; the kernel has port 0.
				if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
					continue
				}
				if e, ok := parse(buffer[:n]); ok {
					offer(events, e)
				}
				continue
			}
			offer(events, e)
		}
	}()
	return events, nil
}

func offer(events chan<- Event, e Event) {
	select {
	case events <- e:
	default: // the full channel already makes the receiver look
	}
}

// parse parses a message: ACTION@PATH, then KEY=VALUE, each ended by a zero
// byte.
func parse(message []byte) (Event, bool) {
	var e Event
	block := false
	for i, field := range bytes.Split(message, []byte{0}) {
		text := string(field)
		key, v, pair := strings.Cut(text, "=")
		switch {
		case i == 0 && !strings.Contains(text, "@"):
			return e, false
		case !pair:
		case key == "ACTION":
			e.Action = v
		case key == "SUBSYSTEM":
			block = v == "block"
		case key == "DEVNAME":
			e.Name = strings.TrimPrefix(v, "/dev/")
		}
	}
	return e, block && e.Action != "" && e.Name != ""
}
