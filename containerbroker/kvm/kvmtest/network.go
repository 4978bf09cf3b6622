package kvmtest

import (
	"crypto/rand"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
)

// keepDevice restores the owner and mode of /dev/kvm when the test ends. If no
// udev runs, setting up the host gives the device to QEMU's group.
func keepDevice(t testing.TB) {
	t.Helper()
	info, err := os.Stat("/dev/kvm")
	if err != nil {
		return
	}
	owner := info.Sys().(*syscall.Stat_t)
	t.Cleanup(func() {
		_ = os.Chown("/dev/kvm", int(owner.Uid), int(owner.Gid))
		_ = os.Chmod("/dev/kvm", info.Mode().Perm())
	})
}

// freeSubnet returns the first address of a /24 that no interface of the host
// uses.
func freeSubnet(t testing.TB) string {
	t.Helper()
	taken, err := net.InterfaceAddrs()
	check(t, "list the host's addresses", err)
	for range 1000 {
		var octets [2]byte
		_, _ = rand.Read(octets[:])
		ip := net.IPv4(10, 128+octets[0]%100, octets[1], 1)
		free := !slices.ContainsFunc(taken, func(a net.Addr) bool {
			network, ok := a.(*net.IPNet)
			return ok && network.Contains(ip)
		})
		if free {
			return ip.String() + "/24"
		}
	}
	t.Fatal("no free subnet")
	return ""
}
