package state_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"hostler/agent/state"
	"hostler/internal/fault"
)

// The tests run and kill the test binary itself.
const (
	helperEnv = "STATE_TEST_HELPER"
	dirEnv    = "STATE_TEST_DIR"
	// noCopiesEnv turns backups off: their syncs may fail.
	noCopiesEnv = "STATE_TEST_NO_COPIES"
)

// manyWrites exceeds the writes that any test needs: a missing failure is
// reported instead of waited for.
const manyWrites = 5000

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		writeUntilFailure(os.Getenv(dirEnv))
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// writeUntilFailure opens the store and creates objects one by one. It prints a
// line for each acknowledged object; the last lines are errors.
func writeUntilFailure(dir string) {
	ctx := context.Background()
	every := 20
	if os.Getenv(noCopiesEnv) != "" {
		every = manyWrites
	}
	l, report, err := state.Open(ctx, state.Options{Dir: dir, BackupEvery: every})
	if err != nil {
		fmt.Printf("error %s %v\n", fault.KindOf(err), err)
		return
	}
	fmt.Printf("open %d rebuilt %v\n", os.Getpid(), report.Rebuilt)
	_, start, err := l.List(ctx)
	for i := start + 1; err == nil && i <= start+manyWrites; i++ {
		name := fmt.Sprintf("m%d", i)
		id := state.ID{Kind: "machine", Name: name}
		if err = l.Begin(ctx, state.Intent{Token: name, Object: id, Action: "create"}); err != nil {
			break
		}
		if _, err = l.Write(ctx, state.Atomic, state.Write{ID: id, Status: []byte(`{"state":"running"}`)}); err != nil {
			break
		}
		if err = l.Record(ctx, state.Event{Object: id, Reason: "Created"}); err != nil {
			break
		}
		fmt.Println("ack", name)
	}
	fmt.Printf("error %s %v\n", fault.KindOf(err), err)
	_, err = l.Write(ctx, state.Atomic, state.Write{ID: state.ID{Kind: "machine", Name: "late"}})
	fmt.Printf("then %s %v\n", fault.KindOf(err), err)
	_ = l.Close()
}

type helper struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

// startHelper runs the test binary, in a wrapper if given.
func startHelper(t *testing.T, dir string, env []string, wrapper ...string) *helper {
	t.Helper()
	argv := append(wrapper, os.Args[0])
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), append(env, helperEnv+"=1", dirEnv+"="+dir)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &helper{cmd, bufio.NewScanner(out)}
}

// line returns the next line, empty at the end.
func (h *helper) line() string {
	if !h.lines.Scan() {
		return ""
	}
	return h.lines.Text()
}

// acked reads until the helper ends. It returns the acknowledged objects and
// the helper's last lines.
func (h *helper) acked() (names, last []string) {
	for h.lines.Scan() {
		if name, ok := strings.CutPrefix(h.lines.Text(), "ack "); ok {
			names = append(names, name)
		} else {
			last = append(last, h.lines.Text())
		}
	}
	_ = h.cmd.Wait()
	return names, last
}

// kept checks that a store holds all acknowledged objects and passes its
// checks.
func kept(t *testing.T, dir string, names []string) {
	t.Helper()
	l, report, err := state.Open(t.Context(), state.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	if report.Rebuilt {
		t.Errorf("report %+v", report)
	}
	for _, name := range names {
		if _, err := l.Get(t.Context(), state.ID{Kind: "machine", Name: name}); err != nil {
			t.Errorf("%s was acknowledged: %v", name, err)
		}
	}
	intents, err := l.Intents(t.Context())
	if err != nil || len(intents) < len(names) {
		t.Errorf("%d intents for %d objects, %v", len(intents), len(names), err)
	}
}

func TestSecondProcessIsTurnedAwayAtOnce(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, state.Options{Dir: dir})
	start := time.Now()
	if _, _, err := state.Open(t.Context(), state.Options{Dir: dir}); !fault.Is(err, fault.Conflict) {
		t.Errorf("in the same process: %v", err)
	}
	h := startHelper(t, dir, nil)
	got := h.line()
	if want := fmt.Sprintf("error conflict cannot open the store: another agent (pid %d) has it open", os.Getpid()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("it took %v", d)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// The kernel releases the lock when its holder ends.
	h = startHelper(t, dir, nil)
	if got, want := h.line(), fmt.Sprintf("open %d rebuilt false", h.cmd.Process.Pid); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	if _, _, err := state.Open(t.Context(), state.Options{Dir: dir}); !fault.Is(err, fault.Conflict) ||
		!strings.Contains(err.Error(), fmt.Sprint(h.cmd.Process.Pid)) {
		t.Errorf("got %v", err)
	}
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	h.acked()
	open(t, state.Options{Dir: dir})
}

func TestLockThatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/lock", 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := state.Open(t.Context(), state.Options{Dir: dir}); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("got %v", err)
	}
}

func TestAcknowledgedWritesSurviveKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var names []string
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 8 {
		h := startHelper(t, dir, nil)
		h.line()
		for range rnd.IntN(60) {
			if name, ok := strings.CutPrefix(h.line(), "ack "); ok {
				names = append(names, name)
			}
		}
		if err := h.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		rest, _ := h.acked()
		names = append(names, rest...)
		kept(t, dir, names)
	}
	if len(names) < 20 {
		t.Errorf("only %d writes were tried", len(names))
	}
}
