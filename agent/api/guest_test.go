package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"hostler/agent/client"
	"hostler/agent/client/frames"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
)

func guestBench(t *testing.T) (*bench, *client.Client) {
	b := newBench(t)
	c := b.listen(t)
	b.machine("one", state.Alive, lxdMachine("web"), running("one"))
	b.machine("new", state.Alive, lxdMachine("web"), spec.MachineStatus{})
	return b, c
}

func TestExecCarriesBinaryDataBothWays(t *testing.T) {
	b, c := guestBench(t)
	b.host.execute = func(_ context.Context, e GuestExec) (int, error) {
		fmt.Fprintf(e.Stderr, "%v %v %dx%d", e.Command, e.Env, e.Width, e.Height)
		// The guest reads its whole input before it writes: the end of the input
		// arrives while the output stays open.
		all, err := io.ReadAll(e.Stdin)
		if err != nil {
			return 0, err
		}
		_, err = e.Stdout.Write(all)
		return 42, err
	}
	data := make([]byte, 3*frames.MaxPayload+17)
	_, _ = rand.Read(data)
	var stdout, stderr bytes.Buffer
	code, err := c.Exec(t.Context(), "one", client.ExecOptions{
		Command: []string{"cat", "-"}, Env: map[string]string{"A": "b"}, Width: 80, Height: 25,
		Stdin: bytes.NewReader(data), Stdout: &stdout, Stderr: &stderr,
	})
	if err != nil || code != 42 || !bytes.Equal(stdout.Bytes(), data) || stderr.String() != "[cat -] map[A:b] 80x25" {
		t.Errorf("code %d, %v, %d bytes of %d, stderr %s", code, err, stdout.Len(), len(data), stderr.String())
	}
	if code, err := c.Exec(t.Context(), "one", client.ExecOptions{Command: []string{"true"}}); err != nil || code != 42 {
		t.Errorf("without streams: %d, %v", code, err)
	}
}

func TestExecTellsWhatIsWrong(t *testing.T) {
	b, c := guestBench(t)
	ctx := t.Context()
	run := []string{"true"}
	_, err := c.Exec(ctx, "absent", client.ExecOptions{Command: run})
	faulttest.Want(t, err, fault.NotFound, "machine/absent")
	_, err = c.Exec(ctx, "new", client.ExecOptions{Command: run})
	faulttest.Want(t, err, fault.NotReady, "no instance yet", "pending")
	_, err = c.Exec(ctx, "one", client.ExecOptions{})
	faulttest.Want(t, err, fault.Invalid, "empty")
	b.host.execute = func(context.Context, GuestExec) (int, error) {
		return 0, fault.New(fault.NotReady, "cannot run a command: the instance is stopped")
	}
	_, err = c.Exec(ctx, "one", client.ExecOptions{Command: run})
	faulttest.Want(t, err, fault.NotReady, "is stopped")
}

func TestExecFollowsTheTerminalsSize(t *testing.T) {
	b, c := guestBench(t)
	b.host.execute = func(_ context.Context, e GuestExec) (int, error) {
		s := <-e.Resize
		fmt.Fprintf(e.Stdout, "%dx%d", s.Width, s.Height)
		return 0, nil
	}
	sizes := make(chan frames.WindowSize, 1)
	sizes <- frames.WindowSize{Width: 132, Height: 43}
	var out bytes.Buffer
	if _, err := c.Exec(t.Context(), "one", client.ExecOptions{Command: []string{"x"}, Terminal: true, Stdout: &out, Resize: sizes}); err != nil || out.String() != "132x43" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// The death of a client ends its command, even if the command does not read its
// input.
func TestTheDeathOfAClientEndsItsCommand(t *testing.T) {
	for name, input := range map[string]io.Reader{
		"idle":                 blockedReader{},
		"with unread input":    endless{},
		"with its input ended": strings.NewReader(""),
	} {
		t.Run(name, func(t *testing.T) {
			b, c := guestBench(t)
			b.host.execute = func(ctx context.Context, _ GuestExec) (int, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := c.Exec(ctx, "one", client.ExecOptions{Command: []string{"sleep"}, Stdin: input})
				ended <- err
			}()
			eventually(t, "the command runs", func() bool { return b.host.running() == 1 })
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
			eventually(t, "the command ends", func() bool { return b.host.running() == 0 })
			eventually(t, "the stream is given back", func() bool { return b.streamsInUse() == 0 })
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

type blockedReader struct{}

func (blockedReader) Read([]byte) (int, error) { select {} }

func TestConsoleJoinsBothSides(t *testing.T) {
	_, c := guestBench(t)
	here, there := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- c.Console(t.Context(), "one", there) }()
	for _, line := range []string{"login: ", "\x00\xff\x1b[A"} {
		if _, err := io.WriteString(here, line); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(line))
		if _, err := io.ReadFull(here, got); err != nil || string(got) != line {
			t.Fatalf("%q, %v", got, err)
		}
	}
	here.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestLogs(t *testing.T) {
	b, c := guestBench(t)
	b.host.logs["one"] = strings.Repeat("booting\n", 10000)
	r, err := c.Logs(t.Context(), "one", client.LogOptions{Tail: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != b.host.logs["one"] {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_, err = c.Logs(t.Context(), "new", client.LogOptions{Tail: -1})
	faulttest.Want(t, err, fault.NotReady)
	for tail, want := range map[int]string{0: "", 1: "booting\n", 2: "booting\nbooting\n"} {
		r, err := c.Logs(t.Context(), "one", client.LogOptions{Tail: tail})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != want {
			t.Errorf("the last %d lines: %q, %v", tail, got, err)
		}
		r.Close()
	}
}

// A followed log shows new output, each line once.
func TestFollowedLog(t *testing.T) {
	b, c := guestBench(t)
	write := func(text string) {
		b.host.mu.Lock()
		defer b.host.mu.Unlock()
		b.host.logs["one"] += text
	}
	write("one\ntwo\n")
	r, err := c.Logs(t.Context(), "one", client.LogOptions{Tail: 1, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	lines := bufio.NewReader(r)
	for _, want := range []string{"two\n", "three\n"} {
		if got, err := lines.ReadString('\n'); err != nil || got != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
		write("three\n")
	}
}

func TestWhatComesAfterInALog(t *testing.T) {
	for _, c := range [][3]string{{"", "a\n", "a\n"}, {"a\n", "a\n", ""}, {"a\n", "a\nb\n", "b\n"}, {"lost\na\n", "a\nb\n", "a\nb\n"}} {
		if got := string(after([]byte(c[0]), []byte(c[1]))); got != c[2] {
			t.Errorf("after %q in %q: %q, want %q", c[0], c[1], got, c[2])
		}
	}
	seen := strings.Repeat("0123456\n", 2000)
	if got := string(after([]byte("gone\n"+seen), []byte(seen+"new\n"))); got != "new\n" {
		t.Errorf("of a log whose beginning is gone: %q", got)
	}
	for n, want := range map[int]string{-1: "a\nb", 0: "", 1: "b", 2: "a\nb", 9: "a\nb"} {
		if got := string(lastLines([]byte("a\nb"), n)); got != want {
			t.Errorf("the last %d: %q", n, got)
		}
	}
}
