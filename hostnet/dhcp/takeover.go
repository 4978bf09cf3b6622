package dhcp

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// dnsPort is the port on which dnsmasq answers queries, on each address of the
// bridge.
const dnsPort = 53

// marker is the first line of our configuration files.
const marker = "# hostler rewrites this file."

// endEarlierServer ends a dnsmasq that another agent left on the same bridge,
// e.g. an agent with another state directory or other records, because that
// dnsmasq holds the addresses that the new dnsmasq needs. If a process that is
// not identified as ours holds such an address, held describes it, else held is
// "".
func (s *Server) endEarlierServer(ctx context.Context, n Network) (held string, err error) {
	sockets := listeners("/proc/thread-self/net", n.Addresses)
	if len(sockets) == 0 {
		return "", nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return "", fmt.Errorf("cannot look for other processes: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		at, holds := holds(pid, sockets)
		if !holds {
			continue
		}
		p, err := read(pid)
		if err != nil || p.zombie {
			continue
		}
		if !s.startedByHostler(p, n.Bridge) {
			held = fmt.Sprintf("the process %d (%s) holds %s", pid, strings.Join(p.argv, " "), at)
			continue
		}
		if err := p.stop(ctx, s.runner); err != nil {
			return "", err
		}
		s.log.Info("Ended a DHCP server that an earlier agent left.", "bridge", n.Bridge, "pid", pid, "configuration", p.configuration())
	}
	return held, nil
}

// startedByHostler reports whether hostler started the process for the bridge.
// Such a process runs dnsmasq with our command line. Its configuration file
// either lies beside ours, or bears our marker and names this bridge.
func (s *Server) startedByHostler(p process, bridge string) bool {
	file := p.configuration()
	own := s.argv()
	if len(p.argv) != len(own) || !slices.Equal(p.argv[:2], own[:2]) || filepath.Base(file) != configFile || !p.runs(own[0]) {
		return false
	}
	if filepath.Dir(filepath.Dir(file)) == filepath.Dir(s.dir) {
		return true
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(io.LimitReader(f, 4096))
	if !lines.Scan() || lines.Text() != marker {
		return false
	}
	for lines.Scan() {
		if lines.Text() == "interface="+bridge {
			return true
		}
	}
	return false
}

// configuration returns the path of the configuration file in our command line.
// The process must be a dnsmasq with this command line.
func (p process) configuration() string {
	_, file, _ := strings.Cut(p.argv[len(p.argv)-1], "--conf-file=")
	return file
}

// runs reports whether the process executes a program with program's base name.
// The program file may be deleted.
func (p process) runs(program string) bool {
	path, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.PID), "exe"))
	return err == nil && filepath.Base(strings.TrimSuffix(path, " (deleted)")) == filepath.Base(program)
}

// holds returns the first of the sockets that the process has open, or false.
func holds(pid int, sockets map[string]netip.AddrPort) (netip.AddrPort, bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return netip.AddrPort{}, false
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			if at, ok := sockets[strings.TrimSuffix(inode, "]")]; ok {
				return at, true
			}
		}
	}
	return netip.AddrPort{}, false
}

// listeners returns the network namespace's sockets that are bound to port 53
// of one of the addresses, keyed by inode. dir is the namespace's folder in
// /proc.
func listeners(dir string, addresses []netip.Prefix) map[string]netip.AddrPort {
	all := map[string]netip.AddrPort{}
	for _, name := range []string{"udp", "udp6", "tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text()) // proc(5)
			if len(fields) < 10 {
				continue
			}
			at, ok := parseSocket(fields[1])
			if ok && at.Port() == dnsPort && slices.ContainsFunc(addresses, func(p netip.Prefix) bool { return p.Addr() == at.Addr() }) {
				all[fields[9]] = at
			}
		}
		_ = f.Close()
	}
	return all
}

// parseSocket reads an address and port in the form of /proc/net, where each
// 32-bit word of the address is in the host's byte order.
func parseSocket(text string) (netip.AddrPort, bool) {
	address, port, _ := strings.Cut(text, ":")
	number, err := strconv.ParseUint(port, 16, 16)
	b, err2 := hex.DecodeString(address)
	if err != nil || err2 != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(number)), ok
}
