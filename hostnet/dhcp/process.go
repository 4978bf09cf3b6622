package dhcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/run"
)

// process identifies a process uniquely. The kernel reuses process numbers, but
// never a number with the same start time during one boot.
type process struct {
	PID int `json:"pid"`
	// Start is the start time in clock ticks after the boot whose id is Boot.
	Start  uint64 `json:"start"`
	Boot   string `json:"boot"`
	argv   []string
	zombie bool
}

func (p process) same(q process) bool {
	return p.PID == q.PID && p.Start == q.Start && p.Boot == q.Boot
}

// read returns the process that has the number pid now.
func read(pid int) (process, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return process{}, err
	}
	// The name in brackets may contain brackets itself (proc(5)), so count the
	// fields after the last bracket.
	_, rest, ok := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(") "))
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 20 {
		return process{}, fmt.Errorf("cannot read the state of process %d", pid)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return process{}, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}, err
	}
	cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return process{}, err
	}
	argv := strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
	return process{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot)), argv: argv, zombie: fields[0] == "Z"}, nil
}

// remember records the process, so that find needs no search.
func (s *Server) remember(p process) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("cannot record dnsmasq's process: %w", err)
	}
	if old, err := os.ReadFile(s.path(recordFile)); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return atomicfile.Write(s.path(recordFile), data, 0o600)
}

// find returns our dnsmasq, or false. This is the recorded process if it still
// runs, or else a process with our command line, e.g. one whose agent died
// before recording it.
func (s *Server) find() (process, bool) {
	if data, err := os.ReadFile(s.path(recordFile)); err == nil {
		var recorded process
		if json.Unmarshal(data, &recorded) == nil && recorded.PID > 0 {
			if p, err := read(recorded.PID); err == nil && p.same(recorded) && s.ours(p) {
				return p, true
			}
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return process{}, false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := read(pid); err == nil && s.ours(p) {
			return p, true
		}
	}
	return process{}, false
}

// ours reports whether the process has our command line and executes dnsmasq as
// one of our users. The command line is not enough, because any user, even of a
// guest, can use the same.
func (s *Server) ours(p process) bool {
	if p.zombie || !slices.Equal(p.argv, s.argv()) || !p.runs(s.argv()[0]) {
		return false
	}
	return slices.Contains(s.users(), userOf(p.PID))
}

// users returns the ids of the users as which our dnsmasq runs. These are root
// until dnsmasq serves, and then the account in its configuration or dnsmasq's
// default.
func (s *Server) users() []string {
	account := "nobody"
	text, _ := os.ReadFile(s.path(configFile))
	for line := range strings.Lines(string(text)) {
		if name, found := strings.CutPrefix(line, "user="); found {
			account = strings.TrimSpace(name)
		}
	}
	ids := []string{"0"}
	if u, err := user.Lookup(account); err == nil {
		ids = append(ids, u.Uid)
	}
	return ids
}

// userOf returns the id of a process's user, or "". It does not use the owner
// of the process's directory in /proc, which is root if the process cannot be
// traced (proc(5)).
func userOf(pid int) string {
	status, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Uid:" {
			return fields[1]
		}
	}
	return ""
}

// stop ends the process and waits for its end. It signals through a pidfd, so
// the signal never reaches another process that got the same number. If the
// agent lacks the permission to signal dnsmasq, the runner ends dnsmasq.
func (p process) stop(ctx context.Context, runner run.Runner) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot end dnsmasq: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	// The number may have been reused before the pidfd was opened.
	if now, err := read(p.PID); err != nil || !now.same(p) {
		return nil
	}
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil {
			if errors.Is(err, unix.ESRCH) {
				return nil
			}
			ender, ok := runner.(run.Ender)
			if !ok || !errors.Is(err, unix.EPERM) {
				return fmt.Errorf("cannot end dnsmasq: %w", err)
			}
			if err := ender.End(ctx, p.PID); err != nil {
				return err
			}
		}
		for end := time.Now().Add(stopWait); time.Now().Before(end); {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("cannot wait for dnsmasq's end: %w", err)
			}
			if ready > 0 {
				return nil
			}
		}
	}
	return fault.New(fault.Transient, "cannot end dnsmasq: process %d does not end", p.PID)
}
