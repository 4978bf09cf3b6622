package blockdevice

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
)

// dropVirtual attaches a filter to the socket that drops messages about virtual
// network interfaces, /dev/kvm and backing devices, of which every start and end
// of a guest sends some. Otherwise each would wake the idle agent. The filter
// passes all other messages, since block devices have many kinds of paths.
func dropVirtual(fd int) error {
	var filter []unix.SockFilter
	// equal loads four bytes and skips as many instructions if they differ from
	// the text.
	equal := func(offset int, text string, skip uint8) {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(offset)}, //nolint:gosec // small
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: skip, K: binary.BigEndian.Uint32([]byte(text))})
	}
	dropped := []string{"net/", "misc", "bdi/"}
	const path = "@/devices/virtual/"
	for _, at := range []int{3, 4, 6, 7} { // the lengths of the actions, from add to offline
		check := uint8(3 * len(dropped)) //nolint:gosec // small
		equal(at, path[:4], 2+check)
		equal(at+len("@/devices/"), "virt", check)
		for _, kind := range dropped {
			equal(at+len(path), kind, 1)
			filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}) // drop
		}
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 18}) // pass
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}               //nolint:gosec // some dozens
	return fault.Explain(unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program), "cannot filter the events of devices")
}
