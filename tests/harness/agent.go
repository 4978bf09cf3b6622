package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Agent is a hostlerd of a test, with folders and a namespace of its own,
// beside a private LXD.
type Agent struct {
	// Dir holds everything: hostler.yaml, conf.d, state, run, log.
	Dir string
	// Env is added to the environment of the daemon and of the command.
	Env []string
	// Flags are added to the daemon's command line, Prefix is put before it.
	Flags, Prefix []string

	t      testing.TB
	daemon *exec.Cmd
	exited chan struct{}
}

// builds makes each kind of binary once per test process.
var builds sync.Map

// Binaries returns the folder with hostlerd and hostler, built with the tags.
func Binaries(t testing.TB, tags string) string {
	t.Helper()
	type built struct {
		once sync.Once
		dir  string
		err  error
	}
	b, _ := builds.LoadOrStore(tags, &built{})
	build := b.(*built)
	build.once.Do(func() {
		build.dir = filepath.Join(Root(t), ".cache", "test-bin", "tags-"+tags)
		cmd := exec.Command("go", "build", "-tags", tags, "-o", build.dir+"/", "./cmd/...")
		cmd.Dir = Root(t)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("cannot build: %w\n%s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.dir
}

// NewAgent prepares an agent for the LXD in lxdDir; Start starts it. Its machines
// are not removed at the end of the test: its LXD goes as a whole.
func NewAgent(t testing.TB, lxdDir string) *Agent {
	t.Helper()
	// What agents set up is the host's, whatever their folders are.
	RaiseLimits(t)
	KeepHostLock(t)
	dir, err := os.MkdirTemp("", "hostler-agent") //nolint:usetesting // a unix socket's path holds 107 bytes, t.TempDir is longer
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		PullStorage(t, dir)
		_ = os.RemoveAll(dir)
	})
	a := &Agent{Dir: dir, Env: []string{"LXD_DIR=" + lxdDir}, t: t}
	a.Configure("namespace: test\nretry-delay: 1s\nstart-retries: 2\n")
	return a
}

// With returns the same agent for a subtest, which reports its own failures. The
// subtest ends all processes that it started.
func (a *Agent) With(t testing.TB) *Agent {
	inner := *a
	inner.t = t
	return &inner
}

// Configure writes hostler.yaml.
func (a *Agent) Configure(yaml string) {
	a.t.Helper()
	// Agents that run at the same time must not manage the same folder of LXC.
	lxc := "types: {lxc: {path: " + filepath.Join(a.Dir, "lxc") + "}"
	if strings.Contains(yaml, "types: {") {
		yaml = strings.Replace(yaml, "types: {", lxc+", ", 1)
	} else {
		yaml += lxc + "}\n"
	}
	if err := os.WriteFile(filepath.Join(a.Dir, "hostler.yaml"), []byte(yaml), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// Socket is the API's.
func (a *Agent) Socket() string { return filepath.Join(a.Dir, "run", "hostler.sock") }

// Launch starts the daemon without waiting for it. The test's end stops it.
func (a *Agent) Launch(tags string) {
	a.t.Helper()
	log, err := os.OpenFile(filepath.Join(a.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		a.t.Fatal(err)
	}
	defer log.Close()
	argv := slices.Concat(a.Prefix, []string{
		filepath.Join(Binaries(a.t, tags), "hostlerd"), "--debug",
		"--config", filepath.Join(a.Dir, "hostler.yaml"), "--state-dir", filepath.Join(a.Dir, "state"), "--run-dir", filepath.Join(a.Dir, "run"),
	}, a.Flags)
	a.daemon = exec.Command(argv[0], argv[1:]...)
	a.daemon.Env = append(os.Environ(), a.Env...)
	a.daemon.Stdout, a.daemon.Stderr = log, log
	a.daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := a.daemon.Start(); err != nil {
		a.t.Fatal(err)
	}
	exited, daemon := make(chan struct{}), a.daemon
	a.exited = exited
	go func() { _ = daemon.Wait(); close(exited) }()
	a.t.Cleanup(func() { a.end(daemon, exited, syscall.SIGTERM) })
}

// Start starts the daemon and waits until it answers.
func (a *Agent) Start() {
	a.t.Helper()
	a.Launch("")
	a.Ready()
}

// Ready waits until the daemon answers.
func (a *Agent) Ready() {
	a.t.Helper()
	Wait(a.t, "the agent", 30*time.Second, func() error {
		if a.Exited() {
			a.t.Fatalf("the agent ended:\n%s", a.Log())
		}
		_, err := a.Try("status")
		return err
	})
}

// Exited says whether the daemon has ended.
func (a *Agent) Exited() bool {
	select {
	case <-a.exited:
		return true
	default:
		return false
	}
}

// Stop ends the daemon with SIGTERM, Kill with SIGKILL; both wait.
func (a *Agent) Stop() { a.end(a.daemon, a.exited, syscall.SIGTERM) }

// Kill ends the daemon at once.
func (a *Agent) Kill() { a.end(a.daemon, a.exited, syscall.SIGKILL) }

// PID is the daemon's process.
func (a *Agent) PID() int { return a.daemon.Process.Pid }

func (a *Agent) end(daemon *exec.Cmd, exited chan struct{}, signal syscall.Signal) {
	_ = daemon.Process.Signal(signal)
	select {
	case <-exited:
	case <-time.After(60 * time.Second):
		a.t.Errorf("the agent does not end on %s; it is killed\n%s", signal, a.Log())
		_ = daemon.Process.Kill()
		<-exited
	}
}

// Log returns the daemon's output.
func (a *Agent) Log() string {
	text, _ := os.ReadFile(filepath.Join(a.Dir, "log"))
	return string(text)
}

// Try runs hostler; stdout and the error's text hold what it wrote.
func (a *Agent) Try(args ...string) (string, error) {
	env := append([]string{"HOSTLER_SOCKET=" + a.Socket()}, a.Env...)
	return Try(env, filepath.Join(Binaries(a.t, ""), "hostler"), args...)
}

// Run is Try for commands that must succeed.
func (a *Agent) Run(args ...string) string {
	a.t.Helper()
	out, err := a.Try(args...)
	if err != nil {
		a.t.Fatalf("%v\nthe agent wrote:\n%s", err, tail(a.Log()))
	}
	return out
}

// Exit runs hostler and returns its exit code with all it wrote.
func (a *Agent) Exit(args ...string) (code int, output string) {
	a.t.Helper()
	cmd := exec.Command(filepath.Join(Binaries(a.t, ""), "hostler"), args...)
	cmd.Env = append(os.Environ(), "HOSTLER_SOCKET="+a.Socket(), "LC_ALL=C.UTF-8")
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		a.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), all.String()
}

// File writes a declaration and returns its path.
func (a *Agent) File(name, yaml string) string {
	a.t.Helper()
	path := filepath.Join(a.Dir, name+".yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// Apply declares yaml under a name and waits until it is carried out. Objects
// that it no longer declares may be destroyed.
func (a *Agent) Apply(name, yaml string, more ...string) string {
	a.t.Helper()
	return a.Run(append([]string{"apply", "-f", a.File(name, yaml), "--wait", "--timeout", "3m", "--allow", "destroy"}, more...)...)
}

// Row is the part of a machine's JSON that tests read.
type Row struct {
	Name, Type, Status, Message, Instance, UID string
	Addresses                                  []string
	Attempts                                   int
	NextRetry                                  *time.Time `json:"next-retry"`
}

// Machines returns `hostler get machines -o json` by name.
func (a *Agent) Machines() map[string]Row {
	a.t.Helper()
	byName, err := a.TryMachines()
	if err != nil {
		a.t.Fatalf("%v\nthe agent wrote:\n%s", err, tail(a.Log()))
	}
	return byName
}

// TryMachines is Machines for any goroutine and for an agent that may fail.
func (a *Agent) TryMachines() (map[string]Row, error) {
	output, err := a.Try("get", "machines", "-o", "json")
	if err != nil {
		return nil, err
	}
	var rows []Row
	if err := json.Unmarshal([]byte(output), &rows); err != nil {
		return nil, err
	}
	byName := make(map[string]Row, len(rows))
	for _, r := range rows {
		byName[r.Name] = r
	}
	return byName, nil
}

func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
