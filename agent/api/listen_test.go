package api

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/agent/client"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
	"hostler/internal/hosttest"
)

func TestTheSocketIsForItsGroupOnly(t *testing.T) {
	dir := filepath.Join(hosttest.SocketDir(t), "run")
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	l, err := Listen(slog.New(slog.DiscardHandler), filepath.Join(dir, "s"), readerGID)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, want := range map[string]os.FileMode{dir: 0o750 | os.ModeDir, filepath.Join(dir, "s"): 0o660 | os.ModeSocket} {
		fi, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		st := fi.Sys().(*syscall.Stat_t)
		if fi.Mode() != want || st.Uid != 0 || st.Gid != readerGID {
			t.Errorf("%s: %s %d:%d, want %s 0:%d", path, fi.Mode(), st.Uid, st.Gid, want, readerGID)
		}
	}
}

// Members of hostler-admin alone reach the socket like members of hostler;
// members of neither group do not. A group that is no longer configured loses
// its entry.
func TestEachGroupAloneReachesTheSocket(t *testing.T) {
	top := hosttest.SocketDir(t)
	if err := os.Chmod(top, 0o755); err != nil { //nolint:gosec // anybody may knock here
		t.Fatal(err)
	}
	socket := filepath.Join(top, "run", "s")
	reaches := func(gid uint32, groups ...uint32) bool {
		c, err := hosttest.DialAs(socket, otherUID, gid, groups...)
		if err == nil {
			c.Close()
		} else if !errors.Is(err, os.ErrPermission) {
			t.Fatal(err)
		}
		return err == nil
	}
	for _, allowed := range [][]int{{readerGID, adminGID}, {readerGID}} {
		l, err := Listen(slog.New(slog.DiscardHandler), socket, allowed...)
		if err != nil {
			t.Fatal(err)
		}
		if !reaches(readerGID) || !reaches(100, readerGID) {
			t.Errorf("%v: a member of hostler alone is kept out", allowed)
		}
		if admins := len(allowed) > 1; reaches(adminGID) != admins || reaches(100, adminGID) != admins {
			t.Errorf("%v: a member of hostler-admin alone gets in: %v, want %v", allowed, !admins, admins)
		}
		if reaches(100) || reaches(0) {
			t.Errorf("%v: a stranger gets in", allowed)
		}
		l.Close()
	}
}

// Without access control lists, e.g. on ZFS with acltype=off, the agent listens
// for its first group, and the log names the groups that have no access.
func TestTheSocketNeedsNoAccessControlLists(t *testing.T) {
	top := hosttest.SocketDir(t)
	if err := unix.Mount("test", top, "ramfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(top, unix.MNT_DETACH) })
	for _, groups := range [][]int{{readerGID}, {readerGID, adminGID}} {
		var log strings.Builder
		socket := filepath.Join(top, "run", "s")
		l, err := Listen(slog.New(slog.NewTextHandler(&log, nil)), socket, groups...)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for path, want := range map[string]os.FileMode{filepath.Dir(socket): 0o750 | os.ModeDir, socket: 0o660 | os.ModeSocket} {
			fi, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if st := fi.Sys().(*syscall.Stat_t); fi.Mode() != want || st.Gid != readerGID {
				t.Errorf("%s: %s of group %d, want %s", path, fi.Mode(), st.Gid, want)
			}
		}
		warned := strings.Count(log.String(), "level=WARN")
		if want := len(groups) - 1; warned != want || want > 0 && !strings.Contains(log.String(), fmt.Sprint(adminGID)) {
			t.Errorf("groups %v: %d warnings, want %d:\n%s", groups, warned, want, log.String())
		}
		l.Close()
	}
}

func TestTheSocketOfADeadAgentIsReplaced(t *testing.T) {
	path := filepath.Join(hosttest.SocketDir(t), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err := Listen(slog.New(slog.DiscardHandler), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Listen(slog.New(slog.DiscardHandler), path, 0)
	faulttest.Want(t, err, fault.Conflict, fmt.Sprintf("another agent is running (pid %d)", os.Getpid()))
}

func TestWhatIsNoSocketIsLeftAlone(t *testing.T) {
	dir := hosttest.SocketDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		_, err := Listen(slog.New(slog.DiscardHandler), path, 0)
		faulttest.Want(t, err, fault.NeedsOperator, "not a socket")
	}
	other := filepath.Join(dir, "theirs")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(other, otherUID, 0); err != nil {
		t.Fatal(err)
	}
	_, err := Listen(slog.New(slog.DiscardHandler), filepath.Join(other, "s"), 0)
	faulttest.Want(t, err, fault.NeedsOperator, "belongs to user")
	if _, err := Listen(slog.New(slog.DiscardHandler), filepath.Join(dir, "linked", "s"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "linked"), filepath.Join(dir, "via")); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(slog.New(slog.DiscardHandler), filepath.Join(dir, "via", "s"), 0); err == nil {
		t.Error("a directory that is a link was taken")
	}
}

func TestTheClientSaysWhyItCannotReachTheAgent(t *testing.T) {
	dir := hosttest.SocketDir(t)
	for name, path := range map[string]string{"absent": filepath.Join(dir, "absent"), "dead": filepath.Join(dir, "dead")} {
		if name == "dead" {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			l.Close()
		}
		c := client.New(path)
		_, err := c.Version(t.Context())
		faulttest.Want(t, err, fault.NotReady, path, "not running", "systemctl start hostlerd")
		_, execErr := c.Exec(t.Context(), "one", client.ExecOptions{Command: []string{"true"}})
		if !errors.Is(err, client.ErrNotRunning) || !errors.Is(execErr, client.ErrNotRunning) {
			t.Errorf("%s: %v, %v", name, err, execErr)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.New(filepath.Join(dir, "absent")).Version(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

// The server judges the peer by the kernel's data, over a real socket.
func TestRightsOverTheSocket(t *testing.T) {
	b := newBench(t)
	b.listen(t)
	for _, path := range []string{filepath.Dir(filepath.Dir(b.socket)), filepath.Dir(b.socket)} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(b.socket, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		uid, gid     uint32
		groups       []uint32
		read, change int
	}{
		{2000, 2000, nil, 403, 403},
		{2000, 2000, []uint32{0}, 403, 403},
		{2000, readerGID, nil, 200, 403},
		{2000, 2000, []uint32{readerGID}, 200, 403},
		{2000, 2000, []uint32{7, adminGID}, 200, 204},
		{lxdUID, 2000, []uint32{adminGID}, 403, 403},
	} {
		conn := dialAs(t, b.socket, c.uid, c.gid, c.groups...)
		r := bufio.NewReader(conn)
		for _, req := range []struct {
			text string
			want int
		}{
			{"GET /v1/version HTTP/1.1\r\nHost: hostler\r\n\r\n", c.read},
			{"POST /v1/machines/one/release HTTP/1.1\r\nHost: hostler\r\nIdempotency-Key: 12345678-" + rand.Text() + "\r\nContent-Length: 0\r\n\r\n", c.change},
		} {
			b.machine("one", "alive", lxdMachine("web"), running("one"))
			if _, err := conn.Write([]byte(req.text)); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != req.want {
				t.Errorf("uid %d gid %d groups %v: %s: %d, want %d", c.uid, c.gid, c.groups, req.text[:12], resp.StatusCode, req.want)
			}
		}
	}
}

func TestConnectionsAndHeadersAreBounded(t *testing.T) {
	b := newBench(t)
	b.listen(t)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	ask := func(text string) int {
		c, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = c.Write([]byte(text))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var p client.Problem
		if resp.StatusCode >= 500 {
			var err error
			if p, err = readProblem(resp); err != nil || p.Kind != fault.Transient {
				t.Errorf("%+v, %v", p, err)
			}
		}
		return resp.StatusCode
	}
	const get = "GET /v1/version HTTP/1.1\r\nHost: hostler\r\n"
	if got := ask(get + "X: " + strings.Repeat("x", maxHeader+1) + "\r\n\r\n"); got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a huge header: %d", got)
	}
	if got := ask(get + "X: " + strings.Repeat("x", maxHeader/2) + "\r\n\r\n"); got != 200 {
		t.Errorf("half of the header's bound: %d", got)
	}
	for range parts[shareRoot].conns.all - len(conns) - 1 {
		ask(get + "\r\n")
	}
	eventually(t, "the bound is reached", func() bool { return ask(get+"\r\n") == 503 })
	for _, c := range conns {
		c.Close()
	}
	conns = nil
	eventually(t, "there is room again", func() bool { return ask(get+"\r\n") == 200 })
}

func TestTheRateIsBoundedPerUser(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newBench(t, func(o *Options) { o.Clock = func() time.Time { return now } })
	ask := func(uid uint32) int { return b.as(peer(uid, readerGID), "GET", "/v1/version", "", "").Code }
	for i := range int(parts[share(roleReader)].burst) {
		if got := ask(2000); got != 200 {
			t.Fatalf("request %d: %d", i, got)
		}
	}
	if got := ask(2000); got != http.StatusTooManyRequests {
		t.Errorf("beyond the burst: %d", got)
	}
	if got := ask(2001); got != 200 {
		t.Errorf("somebody else: %d", got)
	}
	now = now.Add(time.Second)
	for i := range int(parts[share(roleReader)].rate) {
		if got := ask(2000); got != 200 {
			t.Fatalf("request %d a second later: %d", i, got)
		}
	}
	if got := ask(2000); got != http.StatusTooManyRequests {
		t.Errorf("beyond the rate: %d", got)
	}
	now = now.Add(-time.Hour) // a clock that goes back neither adds tokens nor locks out
	if got := ask(2000); got != http.StatusTooManyRequests {
		t.Errorf("after the clock went back: %d", got)
	}
	now = now.Add(2 * time.Minute)
	if ask(2000); len(b.rates.buckets) > 3 { // two uids and their share
		t.Errorf("%d buckets are kept", len(b.rates.buckets))
	}
	for i := range 500 {
		if got := ask(0); got != 200 {
			t.Fatalf("request %d of root: %d", i, got)
		}
	}
}
