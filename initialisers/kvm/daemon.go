package kvm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// runLeast is the free space, in bytes, that /run must have. A libvirt that
// starts with a full /run kills running guests (libvirt's issue tracker, 549).
const runLeast = 32 << 20

// startDaemon starts libvirt. Under systemd it starts libvirt's units. Without
// systemd it starts libvirtd and virtlogd as processes that outlive the agent.
func (i *Initialiser) startDaemon(ctx context.Context) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(i.opts.Paths.Host("/run"), &fs); err == nil && fs.Bavail*uint64(fs.Bsize) < runLeast {
		return fault.New(fault.NeedsOperator, "/run has less than %d MiB free, which may end running guests; free space there", runLeast>>20)
	}
	if _, err := os.Stat(i.opts.Paths.SystemdRunning()); err == nil {
		_, err := i.opts.Runner.Run(ctx, run.Command{
			Path: paths.Systemctl, Args: []string{"start", "virtlogd.socket", "libvirtd.socket", "libvirtd.service"}, Timeout: 2 * time.Minute,
		})
		return err
	}
	for _, folder := range []string{"/var/log/libvirt", "/run/libvirt"} {
		if err := os.MkdirAll(i.opts.Paths.Host(folder), 0o755); err != nil {
			return err
		}
	}
	log := filepath.Dir(i.logFile())
	if !listening(i.opts.Paths.Host("/run/libvirt/virtlogd-sock")) {
		if _, err := i.opts.Runner.Run(ctx, run.Command{Path: paths.Virtlogd, Detach: filepath.Join(log, "virtlogd.log")}); err != nil {
			return err
		}
	}
	if listening(i.opts.Socket) {
		return nil // a daemon runs but is slow; a second one would disturb it
	}
	result, err := i.opts.Runner.Run(ctx, run.Command{Path: paths.Libvirtd, Args: []string{"--timeout", "0"}, Detach: i.logFile()})
	if err == nil {
		i.log.Info("libvirt started", "pid", result.PID, "log", i.logFile())
	}
	return err
}

// openKVM gives QEMU's group access to /dev/kvm, like Debian's udev rule. It
// matters on hosts without udev. If libvirt itself had access and QEMU had not,
// libvirt would probe QEMU again before every start.
func (i *Initialiser) openKVM() error {
	device := i.opts.Paths.Host("/dev/kvm")
	info, err := os.Stat(device)
	if err != nil || info.Mode().Perm() != 0o600 {
		return nil //nolint:nilerr // none, or somebody saw to it
	}
	group, err := user.LookupGroup("kvm")
	if err != nil {
		return nil //nolint:nilerr // nobody could be given it
	}
	gid, err := strconv.Atoi(group.Gid)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if err := errors.Join(os.Chown(device, 0, gid), os.Chmod(device, 0o660)); err != nil {
		return fault.New(fault.Transient, "cannot give QEMU /dev/kvm: %w", err)
	}
	return nil
}

// listening reports whether a process listens on the socket, even if it does
// not answer.
func listening(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// freeSubnet returns the first three numbers of a /24 subnet that no interface
// of the host uses. It tries libvirt's usual subnet, "192.168.122", and then
// the next ones up to "192.168.254".
func freeSubnet() (string, error) {
	taken, err := net.InterfaceAddrs()
	if err != nil {
		return "", fault.New(fault.Transient, "cannot list the host's addresses: %w", err)
	}
	for n := 122; n < 255; n++ {
		prefix := fmt.Sprintf("192.168.%d", n)
		_, subnet, _ := net.ParseCIDR(prefix + ".0/24")
		free := true
		for _, a := range taken {
			if other, ok := a.(*net.IPNet); ok && (other.Contains(subnet.IP) || subnet.Contains(other.IP)) {
				free = false
			}
		}
		if free {
			return prefix, nil
		}
	}
	return "", fault.New(fault.NeedsOperator, "no subnet from 192.168.122.0/24 to 192.168.254.0/24 is free for libvirt's network; define one with `virsh net-define`")
}
