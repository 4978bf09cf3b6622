package blockdevice

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheFilterDropsWhatGuestsCause(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if err := dropVirtual(fds[1]); err != nil {
		t.Fatal(err)
	}
	passed := []string{
		"add@/devices/virtual/block/loop0", "remove@/devices/virtual/block/loop0", "offline@/devices/virtual/block/loop0",
		"change@/devices/pci0000:00/0000:00:04.0/virtio1/block/vda/vda1",
		"add@/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1",
		"add@/devices/pci0000:00/0000:00:1d.0/0000:03:00.0/nvme/nvme0/nvme0n1",
		"bind@/devices/pci0000:00/0000:00:1d.0", "add@/module/x",
	}
	dropped := []string{
		"add@/devices/virtual/net/veth0", "move@/devices/virtual/net/eth0", "remove@/devices/virtual/net/veth0/queues/rx-0",
		"change@/devices/virtual/misc/kvm", "add@/devices/virtual/bdi/7:0", "offline@/devices/virtual/net/x",
	}
	var got []string
	for _, m := range slices.Concat(passed, dropped) {
		if err := unix.Sendto(fds[0], []byte(m+"\x00ACTION=x\x00SUBSYSTEM=block\x00"), 0, nil); err != nil {
			continue // the other socket's filter refuses it
		}
		buffer := make([]byte, 1024)
		if n, _, err := unix.Recvfrom(fds[1], buffer, 0); err == nil {
			got = append(got, string(buffer[:slices.Index(buffer[:n], 0)]))
		}
	}
	if !slices.Equal(got, passed) {
		t.Errorf("passed: %q\nwant: %q", got, passed)
	}
}
