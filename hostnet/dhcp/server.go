package dhcp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

const (
	configFile = "dnsmasq.conf"
	leasesFile = "leases"
	pidFile    = "pid"
	logFile    = "log"
	recordFile = "process"

	startWait = 10 * time.Second
	stopWait  = 5 * time.Second
	poll      = 10 * time.Millisecond
)

// serverUser is the user that the package creates only for dnsmasq, so that no
// other program's user can signal or trace it.
const serverUser = "hostler-dnsmasq"

// account returns serverUser if the host has this user, or else "".
var account = sync.OnceValue(func() string {
	if _, err := user.Lookup(serverUser); err != nil {
		return ""
	}
	return serverUser
})

// Server is the dnsmasq of a network.
type Server struct {
	dir    string
	runner run.Runner
	log    *slog.Logger
}

// New returns the Server whose files are in dir, which no other network uses.
// runner starts dnsmasq as a daemon that outlives this process.
func New(dir string, runner run.Runner, log *slog.Logger) *Server {
	return &Server{dir: dir, runner: runner, log: log}
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// argv is the command line that starts dnsmasq. It also identifies the process,
// because the path of the configuration file is unique.
func (s *Server) argv() []string {
	return []string{paths.Dnsmasq, "--keep-in-foreground", "--conf-file=" + s.path(configFile)}
}

// Ensure makes dnsmasq run with the network's configuration and reports whether
// it started dnsmasq. A changed configuration restarts dnsmasq and keeps the
// leases. If the network names no user, dnsmasq runs as serverUser, or as its
// own default if the host lacks this user.
func (s *Server) Ensure(ctx context.Context, n Network) (started bool, err error) {
	if n.User == "" {
		n.User = account()
	}
	text, err := config(n, s.dir)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return false, fmt.Errorf("cannot configure DHCP: %w", err)
	}
	old, err := os.ReadFile(s.path(configFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("cannot configure DHCP: %w", err)
	}
	p, running := s.find()
	if running && string(old) == text {
		return false, s.remember(p)
	}
	if running {
		if err := p.stop(ctx, s.runner); err != nil {
			return false, err
		}
	}
	if err := s.forget(n); err != nil {
		return false, err
	}
	if err := atomicfile.Write(s.path(configFile), []byte(text), 0o644); err != nil {
		return false, err
	}
	return true, s.start(ctx, n)
}

// forget drops the leases of fixed addresses from the file while dnsmasq does
// not run. hostler's records name the current owners. dnsmasq would refuse a
// leased address to its new owner.
func (s *Server) forget(n Network) error {
	old, err := os.ReadFile(s.path(leasesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the leases: %w", err)
	}
	if kept := n.passing(string(old)); kept != string(old) {
		return atomicfile.Write(s.path(leasesFile), []byte(kept), 0o644)
	}
	return nil
}

// Holds reports whether dnsmasq runs with the network's configuration, so that
// Ensure would not start it.
func (s *Server) Holds(n Network) bool {
	if n.User == "" {
		n.User = account()
	}
	text, err := config(n, s.dir)
	have, unread := os.ReadFile(s.path(configFile))
	return err == nil && unread == nil && string(have) == text && s.Running()
}

// Running reports whether dnsmasq runs.
func (s *Server) Running() bool {
	_, running := s.find()
	return running
}

// Remove ends dnsmasq and removes its files, including the leases. It succeeds
// if they are absent.
func (s *Server) Remove(ctx context.Context) error {
	if p, running := s.find(); running {
		if err := p.stop(ctx, s.runner); err != nil {
			return err
		}
	}
	return fault.Explain(os.RemoveAll(s.dir), "cannot remove the files of DHCP")
}

func (s *Server) start(ctx context.Context, n Network) error {
	bridge := n.Bridge
	held, err := s.endEarlierServer(ctx, n)
	if err != nil {
		return err
	}
	// Remove the files of an earlier process, so that they are not mistaken for
	// files of the new process.
	for _, name := range []string{pidFile, logFile} {
		if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot start dnsmasq: %w", err)
		}
	}
	argv := s.argv()
	result, err := s.runner.Run(ctx, run.Command{Path: argv[0], Args: argv[1:], Job: bridge, Detach: s.path(logFile)})
	if err != nil {
		return err
	}
	deadline := time.Now().Add(startWait)
	for {
		// dnsmasq writes its pid file once it serves.
		data, err := os.ReadFile(s.path(pidFile))
		if err == nil && strings.TrimSpace(string(data)) == strconv.Itoa(result.PID) {
			break
		}
		if p, err := read(result.PID); err != nil || p.zombie {
			if held != "" {
				return fault.New(fault.Transient, "cannot start dnsmasq on %s: %s; end it, or declare another address for the network", bridge, held)
			}
			log, _ := os.ReadFile(s.path(logFile))
			return fault.New(fault.Transient, "cannot start dnsmasq on %s: it ended: %s", bridge, run.Tail(log))
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fault.New(fault.Transient, "cannot start dnsmasq on %s: it does not serve after %v", bridge, startWait)
		}
		time.Sleep(poll)
	}
	p, err := read(result.PID)
	if err != nil {
		return fmt.Errorf("cannot start dnsmasq on %s: %w", bridge, err)
	}
	s.log.Info("DHCP started", "bridge", bridge, "pid", result.PID)
	return s.remember(p)
}
