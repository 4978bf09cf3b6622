package units

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/run"
)

// processes stands for systemd: a unit is a process of this test's program,
// which executes Inside.
type processes struct {
	t *testing.T

	mu    sync.Mutex
	units map[string]*process
	seen  []dbus.Property
}

type process struct {
	cmd  *exec.Cmd
	gone chan struct{}
}

const insideEnv = "UNITS_TEST_INSIDE"

func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) == "" {
		os.Exit(m.Run())
	}
	if err := Inside(context.Background(), os.Stdin, os.Stdout); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func (p *processes) Start(_ context.Context, unit string, properties []dbus.Property) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.units[unit] != nil {
		return errExists
	}
	p.seen = append(p.seen, properties...)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	for _, one := range properties {
		if fd, ok := one.Value.Value().(godbus.UnixFD); ok {
			copied, err := unix.Dup(int(fd))
			if err != nil {
				return err
			}
			cmd.Stdin = os.NewFile(uintptr(copied), "socket")
		}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	cmd.Stdin.(*os.File).Close()
	one := &process{cmd: cmd, gone: make(chan struct{})}
	p.units[unit] = one
	go func() {
		_ = cmd.Wait()
		p.mu.Lock()
		delete(p.units, unit)
		p.mu.Unlock()
		close(one.gone)
	}()
	return nil
}

func (p *processes) Main(context.Context, string) (int, error) { return 0, nil }

func (p *processes) Loaded(_ context.Context, unit string) (map[string]bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	loaded := map[string]bool{}
	if p.units[unit] != nil {
		loaded[unit] = true
	}
	return loaded, nil
}

func (p *processes) UnitOf(context.Context, int) (string, error) { return "", nil }

func (p *processes) Stop(context.Context, string) error { return nil }

func (p *processes) unit(name string) *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.units[name]
}

func newRunner(t *testing.T, kind Kind) (*Runner, *processes) {
	p := &processes{t: t, units: map[string]*process{}}
	return &Runner{kind: kind, system: p, log: slog.New(slog.DiscardHandler)}, p
}

func script(body string) run.Command {
	return run.Command{Path: "/bin/sh", Args: []string{"-c", body}}
}

func TestUnitReportsAsTheHostDoes(t *testing.T) {
	r, _ := newRunner(t, Image)
	var lines, status []string
	pid := 0
	c := script("echo out; echo err >&2; echo st >&3; cat; env; pwd; exit 3")
	c.Env, c.Dir, c.Stdin = []string{"A=b"}, "/tmp", strings.NewReader("in\n")
	c.OnLine = func(l string) { lines = append(lines, l) }
	c.OnStatus = func(l string) { status = append(status, l) }
	c.OnStart = func(p int) { pid = p }
	result, err := r.Run(t.Context(), c)
	var exit *run.ExitError
	if !errors.As(err, &exit) || exit.Code != 3 || exit.Tail != "err" || exit.Name != "sh" || result.ExitCode != 3 {
		t.Errorf("got %+v", err)
	}
	if !strings.HasPrefix(string(result.Stdout), "out\nin\n") || !strings.Contains(string(result.Stdout), "A=b\n") ||
		!strings.HasSuffix(string(result.Stdout), "/tmp\n") || strings.Contains(string(result.Stdout), insideEnv) {
		t.Errorf("stdout %q", result.Stdout)
	}
	if !slices.Contains(lines, "err") || !slices.Contains(lines, "in") || !slices.Equal(status, []string{"st"}) || pid == 0 {
		t.Errorf("lines %q, status %q, pid %d", lines, status, pid)
	}
}

func TestInputIsTheFileItself(t *testing.T) {
	r, _ := newRunner(t, Scan)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := script("readlink /proc/self/fd/0; cat")
	c.Stdin = f
	if result, err := r.Run(t.Context(), c); err != nil || string(result.Stdout) != path+"\ncontent" {
		t.Errorf("%q, %v", result.Stdout, err)
	}
}

// A program with streams has the files themselves, and its exit code comes back.
func TestAttachedProgramHasItsStreams(t *testing.T) {
	r, fake := newRunner(t, Guests)
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	code, err := r.Attach(t.Context(), run.Attached{Path: "/bin/sh", Args: []string{"-c", "readlink /proc/self/fd/0; pwd; exit 7"}, Dir: "/tmp", Stdout: out})
	out.Close()
	text, readErr := io.ReadAll(in)
	if err != nil || readErr != nil || code != 7 || string(text) != "/dev/null\n/tmp\n" {
		t.Errorf("%d, %q, %v, %v", code, text, err, readErr)
	}
	for _, p := range fake.seen {
		if p.Name == "NoNewPrivileges" || p.Name == "CapabilityBoundingSet" || p.Name == "SystemCallFilter" {
			t.Errorf("the unit hands %s on to guests", p.Name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Attach(ctx, run.Attached{Path: "/bin/sleep", Args: []string{"60"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// A pipe of Go's has O_NONBLOCK. A program reads its input before the agent
// writes it, and would take EAGAIN for an error.
func TestStreamsOfAProgramBlock(t *testing.T) {
	r, _ := newRunner(t, Guests)
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer w.Close()
	const flags = "sed -n 's/^flags:[[:space:]]*//p' /proc/self/fdinfo/0"
	check := func(how, text string) {
		t.Helper()
		if got, err := strconv.ParseInt(strings.TrimSpace(text), 8, 64); err != nil || got&unix.O_NONBLOCK != 0 {
			t.Errorf("%s: the input has the flags %q", how, text)
		}
	}
	c := script(flags)
	c.Stdin = in
	result, err := r.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	check("Run", string(result.Stdout))
	if err := unix.SetNonblock(fdOf(t, in), true); err != nil {
		t.Fatal(err)
	}
	out, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	_, err = r.Attach(t.Context(), run.Attached{Path: "/bin/sh", Args: []string{"-c", flags}, Dir: "/", Stdin: in, Stdout: outW})
	outW.Close()
	text, readErr := io.ReadAll(out)
	if err != nil || readErr != nil {
		t.Fatal(err, readErr)
	}
	check("Attach", string(text))
}

func fdOf(t *testing.T, f *os.File) (number int) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { number = int(fd) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func TestCausesOfErrors(t *testing.T) {
	r, _ := newRunner(t, Image)
	if _, err := r.Run(t.Context(), run.Command{Path: "/nonexistent"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	slow := script("sleep 60")
	slow.Timeout = 10 * time.Millisecond
	if _, err := r.Run(t.Context(), slow); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := script("echo ready; sleep 60")
	stopped.OnLine = func(string) { cancel() }
	if _, err := r.Run(ctx, stopped); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := r.Run(ctx, script("true")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	byOperator := end{Problem: "stopped", Cause: canceled}
	if _, err := byOperator.result(t.Context(), script("true")); !fault.Is(err, fault.Transient) {
		t.Errorf("got %v", err)
	}
}

// After its order, the context's end interrupts a NoKill command, and the
// command's own result counts.
func TestNoKillIsAskedToEnd(t *testing.T) {
	r, _ := newRunner(t, Apt)
	ctx, cancel := context.WithCancel(t.Context())
	c := script("trap 'echo asked' INT; echo ready; sleep 0.3; echo finished")
	c.NoKill = true
	c.OnLine = func(line string) {
		if line == "ready" {
			cancel()
		}
	}
	result, err := r.Run(ctx, c)
	if err != nil || string(result.Stdout) != "ready\nasked\nfinished\n" {
		t.Errorf("%q, %v", result.Stdout, err)
	}
}

// orphan starts a command as an agent that dies once the command is ready.
func orphan(t *testing.T, r *Runner, c run.Command) {
	t.Helper()
	near, far, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	err = r.system.Start(t.Context(), r.kind.unit(c.Job), []dbus.Property{property("StandardInputFileDescriptor", godbus.UnixFD(far.Fd()))})
	if err := errors.Join(err, far.Close()); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	var once sync.Once
	c.OnLine = func(string) { once.Do(func() { close(ready) }) }
	done := make(chan error, 1)
	go func() {
		_, err := follow(context.WithoutCancel(t.Context()), near, r.kind.unit(c.Job), c)
		done <- err
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	if err := near.CloseRead(); err != nil {
		t.Fatal(err)
	}
	if err := near.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestUnitOfAKilledAgentEnds(t *testing.T) {
	r, p := newRunner(t, Image)
	c := script("echo ready; sleep 60")
	c.Job = "x"
	orphan(t, r, c)
	if left := p.unit("hostler-image-x.service"); left != nil {
		select {
		case <-left.gone:
		case <-time.After(10 * time.Second):
			t.Error("the unit runs on")
		}
	}
}

// Packages are installed to the end although the agent was killed. The next
// agent waits for that end and reports the wait.
func TestNoKillUnitOfAKilledAgentIsWaitedFor(t *testing.T) {
	r, _ := newRunner(t, Apt)
	file := filepath.Join(t.TempDir(), "file")
	c := script("echo ready; while [ ! -e " + file + ".go ]; do sleep 0.02; done; echo more; echo first >> " + file)
	c.NoKill = true
	orphan(t, r, c)

	var said []string
	awaited := make(chan error, 1)
	go func() {
		awaited <- r.Await(t.Context(), func(s string) {
			said = append(said, s)
			_ = os.WriteFile(file+".go", nil, 0o600)
		})
	}()
	next := script("echo second >> " + file)
	next.NoKill = true
	if _, err := r.Run(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if err := <-awaited; err != nil || len(said) != 1 || !strings.Contains(said[0], "hostler-apt.service") {
		t.Errorf("%q, %v", said, err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "first\nsecond\n" {
		t.Errorf("%q, %v", data, err)
	}
}

// Every user of the host can read a unit's properties.
func TestPropertiesHoldNoSecrets(t *testing.T) {
	r, p := newRunner(t, Apt)
	c := script("cat; : s3cret")
	c.Env, c.Stdin = []string{"PASSWORD=s3cret"}, io.LimitReader(strings.NewReader("s3cret"), 6)
	if result, err := r.Run(t.Context(), c); err != nil || string(result.Stdout) != "s3cret" {
		t.Fatalf("%q, %v", result.Stdout, err)
	}
	if len(p.seen) == 0 {
		t.Fatal("no properties")
	}
	for _, one := range p.seen {
		if strings.Contains(one.Value.String(), "s3cret") {
			t.Errorf("%s is %s", one.Name, one.Value)
		}
	}
}

// Members of the group adm may read the journal.
func TestJournalHoldsNoPasswords(t *testing.T) {
	for line, want := range map[string]string{
		"Get:1 http://user:s3cret@proxy:3128/debian sid": "Get:1 http://[…]@proxy:3128/debian sid",
		"'https://s3@cret@one/a' //u:p@two":              "'https://[…]@one/a' //[…]@two",
		"http://deb.debian.org/debian/dists a@b":         "http://deb.debian.org/debian/dists a@b",
	} {
		near, far, err := socketPair()
		if err != nil {
			t.Fatal(err)
		}
		var journal strings.Builder
		done := make(chan error, 1)
		go func() { done <- Inside(t.Context(), far, &journal) }()
		c := run.Command{Path: "/bin/echo", Args: []string{line}}
		heard := ""
		c.OnLine = func(l string) { heard = l }
		_, err = follow(t.Context(), near, "u", c)
		if err := errors.Join(err, <-done, near.Close(), far.Close()); err != nil || heard != line || journal.String() != want+"\n" {
			t.Errorf("the journal has %q, the agent %q, %v", journal.String(), heard, err)
		}
	}
}

func TestNamesOfUnits(t *testing.T) {
	for _, c := range []struct {
		kind      Kind
		job, want string
	}{
		{Apt, "", "hostler-apt.service"},
		{Apt, "any", "hostler-apt.service"},
		{DNSMasq, "br-en0.7", "hostler-dnsmasq-br-en0.7.service"},
		{Image, "a/b", "hostler-image-a_b.service"},
	} {
		if got := c.kind.unit(c.job); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	if a, b := Scan.unit(""), Scan.unit(""); a == b || !strings.HasPrefix(a, "hostler-scan-") {
		t.Errorf("%s and %s", a, b)
	}
}

// A package's script or an image build that grows without end takes no memory
// and no process ids from the host.
func TestPackagesAndImagesAreLimited(t *testing.T) {
	for _, k := range []Kind{Apt, Image} {
		limits := map[string]any{}
		for _, one := range k.all(script("true")) {
			limits[one.Name] = one.Value.Value()
		}
		if limits["MemoryHigh"] != uint64(2<<30) || limits["TasksMax"] != uint64(4096) {
			t.Errorf("%s: %v and %v", k.name, limits["MemoryHigh"], limits["TasksMax"])
		}
	}
}
