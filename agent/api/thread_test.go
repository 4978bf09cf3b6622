package api

import (
	"encoding/json"
	"net/http"
	"syscall"
	"unsafe"

	"hostler/agent/client"
	"hostler/agent/state"
)

// setGroups sets the supplementary groups of this thread only.
func setGroups(groups []uint32) syscall.Errno {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	_, _, e := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0)
	return e
}

func id(kind, name string) state.ID { return state.ID{Kind: kind, Name: name} }

func readProblem(resp *http.Response) (p client.Problem, err error) {
	return p, json.NewDecoder(resp.Body).Decode(&p)
}
