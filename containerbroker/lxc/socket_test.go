package lxc

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
)

const tableHead = "Num       RefCount Protocol Flags    Type St Inode Path\n"

const table = tableHead +
	"0000000000000000: 00000002 00000000 00010000 0001 01 100 @/var/lib/lxc/web/command\n" +
	"0000000000000000: 00000003 00000000 00000000 0001 03 101 @/var/lib/lxc/gone/command\n" +
	"0000000000000000: 00000002 00000000 00010000 0001 01 102 @/a b/lxc/db/command@@\n" +
	"0000000000000000: 00000002 00000000 00010000 0001 01 103 /run/some.sock\n" +
	"0000000000000000: 00000003 00000000 00000000 0001 03 104\n"

// Only listening sockets count: a connection to a monitor outlives it.
func TestListening(t *testing.T) {
	got, err := listening([]byte(table))
	want := []string{"/a b/lxc/db/command", "/var/lib/lxc/web/command"}
	if err != nil || !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, broken := range []string{"", "x\n", table[:len(table)-1], tableHead + "0: 1 2\n", tableHead + "0: 1 2 zz 4 5 6 @/x\n"} {
		if got, err := listening([]byte(broken)); err == nil {
			t.Errorf("%q gave %v", broken, got)
		}
	}
}

// liblxc hashes the name of a socket that is too long.
func TestSocketName(t *testing.T) {
	if got := socketName("/var/lib/lxc", "web"); got != "/var/lib/lxc/web/command" {
		t.Error(got)
	}
	// FNV-1a of /var/lib/lxc/ and 100 times a.
	if got := socketName("/var/lib/lxc", strings.Repeat("a", 100)); got != "lxc/8aa62dc3e0b0e9dd/command" && len(got) != len("lxc/0123456789abcdef/command") {
		t.Error(got)
	}
}

func FuzzListening(f *testing.F) {
	f.Add([]byte(table))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = listening(text) })
}

func frame(ret, size int32, word uint64) []byte {
	b := make([]byte, 16)
	binary.NativeEndian.PutUint32(b, uint32(ret))
	binary.NativeEndian.PutUint32(b[4:], uint32(size))
	binary.NativeEndian.PutUint64(b[8:], word)
	return b
}

func FuzzFrame(f *testing.F) {
	f.Add(frame(0, 5, 2))
	f.Add(frame(-1, -1, 0))
	f.Add(frame(0, 1<<31-1, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, size, err := parseFrame(data); err == nil && (size < 0 || size > maxAnswer) {
			t.Errorf("%d bytes are to be read", size)
		}
		_ = fileOf(data)
	})
}

// monitor is a monitor of one instance that answers each request with the same
// bytes.
func monitor(t *testing.T, d *Driver, name string, reply []byte) {
	t.Helper()
	listener, err := net.Listen("unix", "@"+socketName(d.opts.Path, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for {
					if n, err := c.Read(make([]byte, 4096)); err != nil || n < 16 {
						return
					}
					if len(reply) == 0 {
						continue // it hangs
					}
					if _, err := c.Write(reply); err != nil || len(reply) < 16 {
						return
					}
				}
			}()
		}
	}()
}

// A monitor that hangs makes its own instance unknown and no other.
func TestHangingMonitor(t *testing.T) {
	d := New(Options{Path: t.TempDir(), Namespace: "hostler", AnswerTimeout: 50 * time.Millisecond})
	for name, reply := range map[string][]byte{"hangs": nil, "runs": frame(0, 0, uint64(stateRunning)), "frozen": frame(0, 0, uint64(stateFrozen)), "stopped": []byte("x")} {
		if err := errors.Join(os.Mkdir(d.instance(name), 0o700), os.WriteFile(filepath.Join(d.instance(name), fileConfig), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if name != "stopped" {
			monitor(t, d, name, reply)
		}
	}
	all, err := d.List(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		want := map[string]containerbroker.Status{
			"hangs": containerbroker.StatusUnknown, "runs": containerbroker.StatusRunning,
			"frozen": containerbroker.StatusFrozen, "stopped": containerbroker.StatusStopped,
		}[i.Name]
		if i.Status != want {
			t.Errorf("%s is %s", i.Name, i.Status)
		}
	}
}

// An answer that announces too much, or that is cut off, is an error.
func TestBadAnswers(t *testing.T) {
	for name, reply := range map[string][]byte{"huge": frame(0, 1<<31-1, 0), "negative": frame(0, -1, 0), "short": []byte("12345678")} {
		d := New(Options{Path: t.TempDir(), AnswerTimeout: 50 * time.Millisecond})
		monitor(t, d, "web", reply)
		if _, err := d.ask(t.Context(), "web", cmdState, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	d := New(Options{Path: t.TempDir()})
	if _, err := d.ask(context.Background(), "absent", cmdState, nil); !errors.Is(err, errNoMonitor) {
		t.Errorf("without a monitor: %v", err)
	}
}

// A monitor of liblxc 5 names the cgroup of a hierarchy by one of its controllers: on
// cgroup v1 with a slash in front, on v2 without. It closes a connection that asks
// for no controller.
func TestTheCgroupOfAMonitor(t *testing.T) {
	for _, c := range []struct {
		unified                        bool
		controller, asked, named, want string
	}{
		{false, "cpu", "cpu\x00", "/lxc.payload.hostler.web", "/cg/cpu/lxc.payload.hostler.web"},
		{true, "", "memory\x00", "lxc.payload.hostler.web", "/cg/lxc.payload.hostler.web"},
		{true, "", "memory\x00", "/lxc.payload.hostler.web", "/cg/lxc.payload.hostler.web"},
		{true, "", "memory\x00", "../etc", ""},
		{true, "", "memory\x00", "/", ""},
		{true, "", "memory\x00", "", ""},
		{true, "", "memory\x00", "a//b", ""},
	} {
		d := New(Options{Path: t.TempDir(), Cgroup: "/cg", AnswerTimeout: 50 * time.Millisecond})
		d.layout = func() bool { return c.unified }
		asked := make(chan string, 1)
		d.dial = func(context.Context, string) (*net.UnixConn, error) {
			ours, theirs, err := socketPair()
			if err != nil {
				return nil, err
			}
			go func() {
				defer func() { _ = theirs.Close() }()
				b := make([]byte, 64)
				n, _ := theirs.Read(b)
				asked <- string(b[min(16, n):n])
				_, _ = theirs.Write(append(frame(0, int32(len(c.named)+1), 0), c.named+"\x00"...))
			}()
			return ours, nil
		}
		got, err := d.limitCgroup(t.Context(), "web", c.controller)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
		if data := <-asked; data != c.asked {
			t.Errorf("%+v: asked for %q", c, data)
		}
	}
}

func socketPair() (ours, theirs *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "monitor")
		end, failed := net.FileConn(file)
		_ = file.Close()
		if failed != nil {
			return nil, nil, failed
		}
		ends[i] = end.(*net.UnixConn)
	}
	return ends[0], ends[1], nil
}
