package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/client/frames"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// instanceOf returns the type and the name of a machine's instance.
func (s *Server) instanceOf(ctx context.Context, name string) (spec.ContainerType, string, error) {
	o, err := s.o.Backend.Get(ctx, state.ID{Kind: spec.KindMachine, Name: name})
	if fault.Is(err, fault.NotFound) {
		return "", "", fault.New(fault.NotFound, "machine/%s is not there", fault.Clip(name, 64))
	}
	if err != nil {
		return "", "", err
	}
	row, err := machineRow(o)
	if err != nil {
		return "", "", err
	}
	if row.Instance == "" {
		return "", "", fault.New(fault.NotReady, "machine/%s has no instance yet (it is %s)", name, row.Status)
	}
	return row.Type, row.Instance, nil
}

// flushing is a writer that flushes every write at once.
type flushing struct {
	w  io.Writer
	rc *http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	_ = f.rc.SetWriteDeadline(time.Now().Add(raw.LineTimeout))
	n, err := f.w.Write(p)
	if err == nil {
		err = f.rc.Flush()
	}
	return n, err
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	var req client.ExecRequest
	err := raw.Decode(r, &req)
	if err == nil && (len(req.Command) == 0 || req.Command[0] == "") {
		err = fault.New(fault.Invalid, "cannot run a command: it is empty")
	}
	if err == nil && (req.Width < 0 || req.Height < 0 || req.Width > 65535 || req.Height > 65535) {
		err = fault.New(fault.Invalid, "cannot run a command: the terminal's size is out of range")
	}
	s.guest(w, r, err, func(ctx context.Context, t spec.ContainerType, instance string, g guestStreams) (int, error) {
		return s.o.Service.Guests.Exec(ctx, t, instance, GuestExec{
			Command: req.Command, Env: req.Env, Terminal: req.Terminal, Width: req.Width, Height: req.Height,
			Stdin: g.stdin, Stdout: g.out.Stream(frames.Stdout), Stderr: g.out.Stream(frames.Stderr), Resize: g.sizes,
		})
	})
}

func (s *Server) console(w http.ResponseWriter, r *http.Request) {
	var req struct{}
	s.guest(w, r, raw.Decode(r, &req), func(ctx context.Context, t spec.ContainerType, instance string, g guestStreams) (int, error) {
		return 0, s.o.Service.Guests.Console(ctx, t, instance, struct {
			io.Reader
			io.Writer
		}{g.stdin, g.out.Stream(frames.Stdout)})
	})
}

// guestStreams holds the client's ends of a guest's streams.
type guestStreams struct {
	stdin io.Reader
	sizes <-chan frames.WindowSize
	out   *frames.Writer
}

// guest upgrades the connection and runs work on its streams. badRequest is the
// error in the request that the caller found, or nil.
func (s *Server) guest(w http.ResponseWriter, r *http.Request, badRequest error, work func(context.Context, spec.ContainerType, string, guestStreams) (int, error)) {
	if badRequest != nil {
		raw.WriteProblem(w, raw.ProblemOf(badRequest))
		return
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), frames.Protocol) {
		w.Header().Set("Upgrade", frames.Protocol)
		raw.WriteProblem(w, raw.NewProblem(http.StatusUpgradeRequired, fault.Invalid, "this needs an upgrade to "+frames.Protocol))
		return
	}
	t, instance, err := s.instanceOf(r.Context(), r.PathValue("name"))
	if err != nil {
		raw.WriteProblem(w, raw.ProblemOf(err))
		return
	}
	s.hijacked.Add(1)
	defer s.hijacked.Done()
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		raw.WriteProblem(w, raw.ProblemOf(err))
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Time{})
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+frames.Protocol+"\r\n\r\n"); err != nil {
		return
	}
	s.attend(r.Context(), conn, rw.Reader, func(ctx context.Context, g guestStreams) (int, error) { return work(ctx, t, instance, g) })
}

// attend runs work on the streams of a connection. If the client disconnects or
// the agent stops, attend ends the context of work.
func (s *Server) attend(ctx context.Context, conn net.Conn, r *bufio.Reader, work func(context.Context, guestStreams) (int, error)) {
	// The hijack ends the context of the request, so use a new one.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stopping := context.AfterFunc(s.stop, cancel)
	defer stopping()
	ended := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer ended()

	stdin, feed := io.Pipe()
	sizes := make(chan frames.WindowSize, 1)
	out := frames.NewWriter(conn)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		defer cancel()
		defer close(sizes)
		receiveInput(r, feed, sizes)
	})
	beating := make(chan struct{})
	tasks.Go(func() { s.beat(out, beating, cancel) })

	code, err := work(ctx, guestStreams{stdin: stdin, sizes: sizes, out: out})
	_ = stdin.Close()
	close(beating)
	if err != nil {
		b, _ := json.Marshal(raw.ProblemOf(err))
		_ = out.Send(frames.Problem, b)
	} else {
		_ = out.Send(frames.Exit, frames.EncodeExit(code))
	}
	cancel()
	_ = conn.Close()
	tasks.Wait()
}

// receiveInput forwards the client's frames. It returns when the client
// disconnects or violates the protocol.
func receiveInput(r io.Reader, feed *io.PipeWriter, sizes chan frames.WindowSize) {
	defer feed.Close()
	for {
		kind, payload, err := frames.Read(r)
		if err != nil {
			return
		}
		switch kind {
		case frames.Stdin:
			if len(payload) == 0 {
				_ = feed.Close()
			} else {
				// If the command no longer reads, drop its input, as a closed pipe
				// does.
				_, _ = feed.Write(payload)
			}
		case frames.Resize:
			size, err := frames.DecodeWindowSize(payload)
			if err != nil {
				return
			}
			// Drop an unread size, because only the last size counts.
			select {
			case <-sizes:
			default:
			}
			sizes <- size
		default:
			return
		}
	}
}

// beat sends heartbeats and calls gone if one cannot be sent. So attend()
// notices a lost client even while nothing reads the client's input.
func (s *Server) beat(out *frames.Writer, done <-chan struct{}, gone func()) {
	t := time.NewTicker(s.o.Heartbeat)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
			if out.Send(frames.Beat, nil) != nil {
				gone()
				return
			}
		}
	}
}
