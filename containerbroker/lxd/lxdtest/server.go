// Package lxdtest starts a private LXD or Incus for a test and removes it
// afterwards. The daemon has its own storage pool, bridge and tiny image. The
// package needs root, the daemon and a static busybox.
package lxdtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/internal/hosttest"
)

// fields is a JSON document for LXD.
type fields map[string]any

// Daemon is a program that speaks LXD's API.
type Daemon struct {
	// Name is also the name of the container type. Program is the daemon's
	// path, Client the name of its command line client. Variable is the
	// environment variable that names its state folder.
	Name, Program, Client, Variable string
}

// The daemons that Start() can start.
var (
	LXD   = Daemon{Name: "lxd", Program: "/usr/bin/lxd", Client: "lxc", Variable: "LXD_DIR"}
	Incus = Daemon{Name: "incus", Program: "/usr/libexec/incus/incusd", Client: "incus", Variable: "INCUS_DIR"}
)

// Chosen returns the daemon that the variable HOSTLER_TEST_DAEMON names (lxd or
// incus), or LXD if the variable is not set. Tests that do not name a daemon
// use it.
func Chosen() Daemon {
	if os.Getenv("HOSTLER_TEST_DAEMON") == Incus.Name {
		return Incus
	}
	return LXD
}

// waitLimit bounds every wait of this package.
const waitLimit = 60 * time.Second

// Options configures Start.
type Options struct {
	// Daemon is the daemon to start; default Chosen().
	Daemon Daemon
	// Driver is the storage driver of the pool, btrfs (in a loop file) or dir.
	Driver string
	// NoImage omits the tiny image.
	NoImage bool
}

// Server is a private LXD or Incus.
type Server struct {
	// Daemon is the program that runs.
	Daemon Daemon
	// Dir is the daemon's state folder. Socket is the unix socket in it.
	Dir, Socket string
	// Pool and Bridge are the storage pool and the bridge in the default
	// profile. The bridge has a DHCP server. Subnet is the bridge's address
	// with its prefix length.
	Pool, Bridge, Subnet string
	// TinyAlias and TinyFingerprint name the tiny image.
	TinyAlias, TinyFingerprint string

	t       testing.TB
	links   map[string]bool // the host's network links before the start
	process *os.Process
	exited  chan struct{}
}

// Start starts a private LXD with a btrfs pool. The LXD ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartWith(t, Options{Driver: "btrfs"})
}

// StartWith starts a private LXD with the given options.
func StartWith(t testing.TB, o Options) *Server {
	t.Helper()
	// Do not use t.TempDir(), because its path contains the test's name, and
	// the paths of LXD's sockets must stay below 108 characters.
	if o.Daemon.Name == "" {
		o.Daemon = Chosen()
	}
	dir, err := os.MkdirTemp("", "lxdtest") //nolint:usetesting // see above
	check(t, "make LXD's directory", err)
	s := &Server{Daemon: o.Daemon, Dir: dir, Socket: filepath.Join(dir, "unix.socket"), Pool: "default", TinyAlias: "tiny", t: t, links: linkNames()}
	hosttest.KeepForwarding(t)
	t.Cleanup(s.tearDown)
	s.Run()
	s.configure(o)
	if !o.NoImage {
		s.TinyFingerprint = s.Import(s.TinyAlias, "")
	}
	return s
}

// Run starts the daemon (again, after Kill or Stop) and waits until it answers.
// A daemon that ends meanwhile is started again, as by systemd: LXD 5.0.2 panics
// if a container stops before the daemon has loaded all of its state.
func (s *Server) Run() {
	s.t.Helper()
	s.launch()
	err := until(func() error {
		select {
		case <-s.exited:
			s.t.Log("the daemon ended while it started, and is started again")
			s.launch()
		default:
		}
		var ready any
		return s.api(http.MethodGet, "/internal/ready", nil, &ready)
	})
	if err != nil {
		text, _ := os.ReadFile(filepath.Join(s.Dir, "lxd.log"))
		s.t.Fatalf("LXD does not become ready: %v\n%s", err, text)
	}
}

// launch starts the daemon's process.
func (s *Server) launch() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.Dir, "lxd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(s.t, "open LXD's log", err)
	defer func() { _ = log.Close() }()
	null, err := os.Open(os.DevNull)
	check(s.t, "open "+os.DevNull, err)
	defer func() { _ = null.Close() }()
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LXD_") || strings.HasPrefix(v, "INCUS_") })
	s.process, err = os.StartProcess(s.Daemon.Program, []string{filepath.Base(s.Daemon.Program), "--group", "root"}, &os.ProcAttr{
		Env:   append(env, s.Daemon.Variable+"="+s.Dir),
		Files: []*os.File{null, log, log},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	check(s.t, "start LXD", err)
	exited := make(chan struct{})
	s.exited = exited
	go func(p *os.Process) {
		_, _ = p.Wait()
		close(exited)
	}(s.process)
}

// PID returns the daemon's process id.
func (s *Server) PID() int { return s.process.Pid }

// Kill ends the daemon with SIGKILL. Its containers continue to run.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop ends the daemon with SIGTERM. Its containers continue to run.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

func (s *Server) end(signal syscall.Signal) {
	select {
	case <-s.exited:
		return
	default:
	}
	_ = s.process.Signal(signal)
	select {
	case <-s.exited:
	case <-time.After(waitLimit):
		_ = s.process.Kill()
		<-s.exited
	}
}

// Freeze suspends the daemon with SIGSTOP, until Thaw() is called.
func (s *Server) Freeze() { _ = s.process.Signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (s *Server) Thaw() { _ = s.process.Signal(syscall.SIGCONT) }

func (s *Server) configure(o Options) {
	s.t.Helper()
	config := map[string]string{}
	if o.Driver == "btrfs" {
		config["size"] = "8GiB" // the pool's file is sparse
	}
	s.must(http.MethodPost, "/1.0/storage-pools", fields{"name": s.Pool, "driver": o.Driver, "config": config})
	s.Bridge = "lxt" + strings.ToLower(rand.Text()[:8])
	s.Subnet = hosttest.FreeSubnet(s.t) + ".1/24"
	// Try again after an error. Incus reads all links of the host while it
	// makes a bridge, and fails if another test removes one of them.
	check(s.t, "make a bridge", until(func() error {
		return s.api(http.MethodPost, "/1.0/networks", fields{
			"name": s.Bridge, "type": "bridge",
			"config": fields{"ipv4.address": s.Subnet, "ipv4.nat": "false", "ipv6.address": "none"},
		}, nil)
	}))
	s.must(http.MethodPut, "/1.0/profiles/default", fields{"devices": fields{
		"root": fields{"type": "disk", "path": "/", "pool": s.Pool},
		"eth0": fields{"type": "nic", "name": "eth0", "network": s.Bridge},
	}})
}

// Import builds a tiny image, imports it under an alias and returns its
// fingerprint. init is the script of process 1; "" means TinyInit.
func (s *Server) Import(alias, init string) string {
	s.t.Helper()
	path := filepath.Join(s.Dir, alias+".tar")
	check(s.t, "build the tiny image", BuildTiny(path, init))
	file, err := os.Open(path)
	check(s.t, "read the tiny image", err)
	defer func() { _ = file.Close() }()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://lxd/1.0/images", file)
	check(s.t, "import the tiny image", err)
	req.Header.Set("Content-Type", "application/octet-stream")
	var op Operation
	check(s.t, "import the tiny image", s.do(req, &op))
	fingerprint, _ := op.Metadata["fingerprint"].(string)
	s.must(http.MethodPost, "/1.0/images/aliases", fields{"name": alias, "target": fingerprint})
	return fingerprint
}

// Names returns the names of all instances.
func (s *Server) Names() []string {
	s.t.Helper()
	var paths []string
	check(s.t, "list instances", s.api(http.MethodGet, "/1.0/instances", nil, &paths))
	for i, path := range paths {
		paths[i], _ = url.PathUnescape(filepath.Base(path))
	}
	return paths
}

func check(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("cannot %s: %v", what, err)
	}
}

// until calls try until it returns nil. After waitLimit it returns try's last
// error.
func until(try func() error) error {
	deadline := time.Now().Add(waitLimit)
	for {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s: %w", waitLimit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
