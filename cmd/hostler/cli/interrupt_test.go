package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// readerFunc is an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// The first signal ends a command that waits for input: on standard input, and
// on a FIFO whose writer writes nothing.
func TestASignalEndsABlockedRead(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"-", fifo} {
		ctx, signal := context.WithCancel(t.Context())
		release := make(chan struct{})
		stdin := readerFunc(func([]byte) (int, error) {
			signal()
			<-release
			return 0, io.EOF
		})
		if file == fifo {
			go func() {
				w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the command opened the FIFO
				signal()
				<-release
				if err == nil {
					w.Close()
				}
			}()
		}
		ended := make(chan outcome, 1)
		go func() {
			var out, messages bytes.Buffer
			code := execute(ctx, env{
				Args: []string{"validate", "-f", file}, Stdin: stdin, Stdout: &out, Stderr: &messages,
				Getenv: func(string) string { return "" }, Now: time.Now, Term: &fakeTerminal{},
			})
			ended <- outcome{code, out.String(), messages.String()}
		}()
		select {
		case got := <-ended:
			if want := (outcome{exitInterrupted, "", "hostler: interrupted\n"}); got != want {
				t.Errorf("%s: got %+v", file, got)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the command still reads", file)
		}
		close(release)
	}
}
