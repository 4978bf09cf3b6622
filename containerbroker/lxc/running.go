package lxc

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxSocket is the length of an abstract socket's name from which liblxc hashes
// the name.
const maxSocket = 106

// socketName returns the abstract socket of an instance's monitor, without the
// leading NUL.
func socketName(path, name string) string {
	plain := path + "/" + name + "/command"
	if len(plain) < maxSocket {
		return plain
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(path + "/" + name))
	return fmt.Sprintf("lxc/%016x/command", h.Sum64())
}

func (d *Driver) readSockets() ([]byte, error) {
	return os.ReadFile(filepath.Join(d.opts.Proc, "self", "net", "unix"))
}

// listening returns the abstract sockets with a listener, of the kernel's table
// of unix sockets. A line has the columns address, references, protocol, flags,
// type, state, inode and name; the name may have spaces. The kernel writes @ for
// each NUL.
func listening(table []byte) (map[string]bool, error) {
	found := map[string]bool{}
	lines := strings.Lines(string(table))
	header := false
	for line := range lines {
		if !header {
			if header = strings.HasPrefix(line, "Num "); !header {
				return nil, fmt.Errorf("the table of unix sockets has no header")
			}
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 7 || !strings.HasSuffix(line, "\n") {
			return nil, fmt.Errorf("the table of unix sockets is cut off")
		}
		flags, err := strconv.ParseUint(fields[3], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("the table of unix sockets has a line without flags")
		}
		_, name, abstract := strings.Cut(line, " @")
		if abstract && flags&acceptsConnections != 0 {
			found[strings.TrimRight(strings.TrimSuffix(name, "\n"), "@")] = true
		}
	}
	if !header {
		return nil, fmt.Errorf("the table of unix sockets is empty")
	}
	return found, nil
}

// acceptsConnections is the kernel's flag __SO_ACCEPTCON of a listening socket.
const acceptsConnections = 1 << 16

// monitors returns the names of the sockets of all monitors.
func (d *Driver) monitors() (map[string]bool, error) {
	table, err := d.table()
	if err != nil {
		return nil, err
	}
	return listening(bytes.TrimLeft(table, "\n"))
}
