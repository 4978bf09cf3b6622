package blockdevice

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// uevents is the multicast group of the kernel's own messages; udev repeats
// them in another group.
const uevents = 1

// Changes returns a channel that gets a signal when the kernel adds, changes or
// removes a block device. The channel is closed when ctx ends. Changes before
// the receiver takes a signal merge into this signal.
func Changes(ctx context.Context) (<-chan struct{}, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for block devices: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: uevents}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("cannot listen for block devices: %w", err)
	}
	_ = dropVirtual(fd) // without the filter the agent is only woken more often
	// os.NewFile puts the socket under the runtime's poller, so that closing it
	// ends a read.
	file := os.NewFile(uintptr(fd), "uevents")
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("cannot listen for block devices: %w", err)
	}
	changes := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { _ = file.Close() })
	go func() {
		defer close(changes)
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
			switch {
			case errors.Is(got, unix.EINTR):
				continue
			case errors.Is(got, unix.ENOBUFS): // lost messages may be about block devices
			case got != nil:
				return
			case !fromKernel(from) || !ofBlockDevice(buffer[:n]):
				continue
			}
			select {
			case changes <- struct{}{}:
			default: // a signal is already pending
			}
		}
	}()
	return changes, nil
}

// fromKernel reports whether a message has port 0, which only the kernel uses.
// Any process may send to the group.
func fromKernel(sender unix.Sockaddr) bool {
	from, ok := sender.(*unix.SockaddrNetlink)
	return ok && from.Pid == 0
}

// ofBlockDevice reports whether a message is about a block device. A message
// consists of ACTION@PATH and pairs KEY=VALUE, each ended by a zero byte.
func ofBlockDevice(message []byte) bool {
	head, fields, _ := strings.Cut(string(message), "\x00")
	values := map[string]string{}
	for field := range strings.SplitSeq(fields, "\x00") {
		key, value, _ := strings.Cut(field, "=")
		values[key] = value
	}
	return strings.Contains(head, "@") && values["SUBSYSTEM"] == "block" && values["ACTION"] != "" && values["DEVNAME"] != ""
}
