package lxc

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxAnswer bounds the data of an answer in bytes.
const maxAnswer = 64 << 10

// answer is a monitor's answer. file is set if the answer carried a descriptor.
type answer struct {
	ret  int32
	word uint64
	data []byte
	file *os.File
}

// request returns struct lxc_cmd_req {int cmd; int datalen; const void *data}
// with its data.
func request(command int, data []byte) []byte {
	req := make([]byte, 16, 16+len(data))
	binary.NativeEndian.PutUint32(req, uint32(command))
	binary.NativeEndian.PutUint32(req[4:], uint32(len(data)))
	return append(req, data...)
}

// parseFrame reads struct lxc_cmd_rsp {int ret; int datalen; void *data} and
// returns the size of the data that follows.
func parseFrame(frame []byte) (answer, int, error) {
	if len(frame) == 0 {
		return answer{}, 0, io.EOF
	}
	if len(frame) < 16 {
		return answer{}, 0, fmt.Errorf("the monitor's answer has %d bytes", len(frame))
	}
	a := answer{ret: int32(binary.NativeEndian.Uint32(frame)), word: binary.NativeEndian.Uint64(frame[8:])}
	size := int32(binary.NativeEndian.Uint32(frame[4:]))
	if size < 0 || size > maxAnswer {
		return a, 0, fmt.Errorf("the monitor announces %d bytes", size)
	}
	return a, int(size), nil
}

// fileOf returns the first descriptor of a control message and closes others.
func fileOf(rights []byte) *os.File {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	var first *os.File
	for _, m := range messages {
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SCM_RIGHTS {
			continue
		}
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if first == nil {
				unix.CloseOnExec(fd)
				_ = unix.SetNonblock(fd, true) // so that Close ends a read
				first = os.NewFile(uintptr(fd), "monitor")
			} else {
				_ = unix.Close(fd)
			}
		}
	}
	return first
}
