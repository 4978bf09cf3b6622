// Package kvmtest starts a private libvirt for a test and removes it
// afterwards. The libvirt has its own storage pool, network and tiny bootable
// disk. The package needs root, libvirt, QEMU and GRUB.
package kvmtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/internal/hosttest"
	"hostler/internal/run"
)

// waitLimit bounds every wait of this package.
const waitLimit = 60 * time.Second

// Server is a private libvirtd.
type Server struct {
	// Dir is the folder with all files of the server. Socket is the server's
	// unix socket.
	Dir, Socket string
	// PoolDir is the folder of the server's storage pool "default".
	PoolDir string
	// Runtime is the folder with the process ids of the server's guests.
	Runtime string
	// Bridge is the bridge of the server's network "default", which has a DHCP
	// server. Subnet is the bridge's address with its prefix length.
	Bridge, Subnet string

	t       testing.TB
	process *os.Process
	exited  chan struct{}
	logd    int
}

// script mounts the server's folders over libvirt's folders and runs a program.
// It must run in a separate mount namespace.
const script = `set -e
for d in etc run lib log cache; do
  case $d in etc) to=/etc/libvirt;; run) to=/run/libvirt;; *) to=/var/$d/libvirt;; esac
  mount --bind "$0/$d" "$to"
done
exec "$@"
`

// folders are libvirt's folders. The Debian package makes all of them except
// /run/libvirt, which the daemon makes.
var folders = []string{"/etc/libvirt", "/run/libvirt", "/var/lib/libvirt", "/var/log/libvirt", "/var/cache/libvirt"}

// Start starts a private libvirtd, which ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "kvmtest") //nolint:usetesting // a socket path must be short
	check(t, "make libvirt's folder", err)
	check(t, "open libvirt's folder", os.Chmod(dir, 0o755))
	s := &Server{
		Dir: dir, Socket: filepath.Join(dir, "run", "libvirt-sock"), PoolDir: filepath.Join(dir, "pool"),
		Runtime: filepath.Join(dir, "run", "qemu"), t: t,
	}
	hosttest.KeepForwarding(t)
	keepDevice(t)
	keepFolders(t)
	t.Cleanup(s.tearDown)
	for _, sub := range []string{"etc/qemu", "run", "lib/qemu", "lib/images", "lib/dnsmasq", "lib/boot", "log/qemu", "cache/qemu", "pool"} {
		check(t, "make libvirt's folders", os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	s.write("etc/libvirtd.conf", "auth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\n")
	// QEMU runs as root. If it did not, and only root had the right to open
	// /dev/kvm, libvirt would probe QEMU for seconds before every start.
	s.write("etc/qemu.conf", "user = \"root\"\ngroup = \"root\"\nsecurity_driver = \"none\"\nnamespaces = []\nremember_owner = 0\ncgroup_controllers = []\n")
	s.write("etc/virtlogd.conf", "")
	s.useCapabilities()
	s.startLogd()
	s.Run()
	s.configure()
	s.keepCapabilities()
	return s
}

func (s *Server) write(name, text string) {
	s.t.Helper()
	check(s.t, "write "+name, os.WriteFile(filepath.Join(s.Dir, name), []byte(text), 0o600))
}

// spawn starts a program in the server's mount namespace.
func (s *Server) spawn(log string, program ...string) *os.Process {
	s.t.Helper()
	out, err := os.OpenFile(filepath.Join(s.Dir, log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(s.t, "open "+log, err)
	defer func() { _ = out.Close() }()
	null, err := os.Open(os.DevNull)
	check(s.t, "open "+os.DevNull, err)
	defer func() { _ = null.Close() }()
	p, err := os.StartProcess("/usr/bin/unshare", append(s.Prefix(), program...), &os.ProcAttr{
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}, Files: []*os.File{null, out, out}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	check(s.t, "start "+program[0], err)
	return p
}

// Prefix returns the beginning of a command line. The program that follows
// finds the server at libvirt's usual paths.
func (s *Server) Prefix() []string {
	return []string{"/usr/bin/unshare", "-m", "--propagation", "private", "/bin/sh", "-c", script, s.Dir}
}

// Behind is like Prefix, but the program finds the proxy's socket in place of
// the server's. This holds until the server is started again.
func (s *Server) Behind(p *Proxy) []string {
	return append(s.Prefix(), "/bin/sh", "-c", `mount --bind "$0" /run/libvirt/libvirt-sock && exec "$@"`, p.Socket)
}

func (s *Server) startLogd() {
	p := s.spawn("virtlogd.log", "/usr/sbin/virtlogd", "--pid-file", filepath.Join(s.Dir, "run", "virtlogd.pid"))
	s.logd = p.Pid
	go func() { _, _ = p.Wait() }()
}

// Run starts the daemon (again, after Kill or Stop) and waits until it answers.
func (s *Server) Run() {
	s.t.Helper()
	_ = os.Remove(s.Socket)
	s.process = s.spawn("libvirtd.log", "/usr/sbin/libvirtd", "--timeout", "0", "--pid-file", filepath.Join(s.Dir, "run", "libvirtd.pid"))
	exited := make(chan struct{})
	s.exited = exited
	go func(p *os.Process) {
		_, _ = p.Wait()
		close(exited)
	}(s.process)
	err := until(func() error {
		_, err := s.virsh("version")
		return err
	})
	if err != nil {
		text, _ := os.ReadFile(filepath.Join(s.Dir, "libvirtd.log"))
		s.t.Fatalf("libvirt does not become ready: %v\n%s", err, text)
	}
}

// PID returns the daemon's process id.
func (s *Server) PID() int { return s.process.Pid }

// Kill ends the daemon with SIGKILL. Its guests continue to run.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop ends the daemon with SIGTERM. Its guests continue to run.
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

// Virsh runs virsh on the server and returns its output.
func (s *Server) Virsh(args ...string) string {
	s.t.Helper()
	out, err := s.virsh(args...)
	check(s.t, "run virsh "+strings.Join(args, " "), err)
	return out
}

func (s *Server) virsh(args ...string) (string, error) {
	result, err := run.Host{}.Run(context.Background(), run.Command{
		Path: "/usr/bin/virsh", Args: append([]string{"-q", "-c", "qemu:///system?socket=" + s.Socket}, args...), Timeout: waitLimit,
	})
	return string(result.Stdout), err
}

// Define defines a domain or another object from XML. command is the virsh
// command for it, e.g. net-define.
func (s *Server) Define(command, xml string) {
	s.t.Helper()
	file := filepath.Join(s.Dir, "define.xml")
	check(s.t, "write a definition", os.WriteFile(file, []byte(xml), 0o600))
	s.Virsh(command, file)
}

func (s *Server) configure() {
	s.t.Helper()
	name := make([]byte, 4)
	_, _ = rand.Read(name)
	s.Bridge = "kvt" + hex.EncodeToString(name)
	s.Subnet = hosttest.FreeSubnet(s.t) + ".1/24"
	host, subnet, _ := net.ParseCIDR(s.Subnet)
	first, last := slices.Clone(subnet.IP.To4()), slices.Clone(subnet.IP.To4())
	first[3], last[3] = 10, 200
	// In mode "open", libvirt does not change the host's firewall.
	s.Define("net-define", fmt.Sprintf("<network><name>default</name><forward mode='open'/><bridge name='%s' stp='off' delay='0'/>"+
		"<ip address='%s' netmask='255.255.255.0'><dhcp><range start='%s' end='%s'/></dhcp></ip></network>", s.Bridge, host, first, last))
	s.Virsh("net-start", "default")
	s.Define("pool-define", "<pool type='dir'><name>default</name><target><path>"+s.PoolDir+"</path></target></pool>")
	s.Virsh("pool-start", "default")
}

// tearDown removes everything that the server made. The test fails if something
// remains.
func (s *Server) tearDown() {
	if s.process != nil {
		s.Thaw()
		select {
		case <-s.exited:
			s.Run()
		default:
		}
		for _, name := range s.Names() {
			_, _ = s.virsh("destroy", name)
			if _, err := s.virsh("undefine", name, "--nvram", "--managed-save", "--snapshots-metadata"); err != nil {
				s.t.Errorf("cannot remove domain %s: %v", name, err)
			}
		}
		_, _ = s.virsh("net-destroy", "default")
		s.Stop()
	}
	if s.logd != 0 {
		_ = syscall.Kill(s.logd, syscall.SIGTERM)
	}
	err := until(func() error {
		if left := s.processes(); len(left) > 0 {
			return fmt.Errorf("processes %v are left", left)
		}
		return nil
	})
	if err != nil {
		s.t.Error(err)
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		s.t.Errorf("cannot remove libvirt's folder: %v", err)
	}
	if s.Bridge != "" {
		if _, err := net.InterfaceByName(s.Bridge); err == nil {
			s.t.Errorf("bridge %s is left behind", s.Bridge)
		}
	}
}

// processes returns the ids of the processes that have the server's folder
// mounted.
func (s *Server) processes() (pids []string) {
	tables, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, table := range tables {
		data, err := os.ReadFile(table)
		if err == nil && strings.Contains(string(data), s.Dir+"/run ") {
			pids = append(pids, filepath.Base(filepath.Dir(table)))
		}
	}
	return pids
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
