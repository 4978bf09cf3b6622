package lxd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/run"
)

const (
	// pingTimeout bounds one request to the daemon. If the request starts a
	// socket-activated daemon, the daemon may need longer, so that only a later
	// request is answered.
	pingTimeout = 5 * time.Second
	pingEvery   = 200 * time.Millisecond
	// sayEvery is the minimum time between progress messages while waiting.
	sayEvery = 5 * time.Second
)

// ping returns nil if the daemon at socket answers. While LXD is starting, it
// answers 503, which is an error.
func ping(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://lxd/1.0", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", response.Status)
	}
	return nil
}

// listening reports whether a process listens on the socket, even if it does
// not answer.
func listening(ctx context.Context, socket string) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		// These errors mean that the socket's backlog is full, so a process
		// listens.
		return errors.Is(err, syscall.EAGAIN) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
	}
	_ = conn.Close()
	return true
}

// start starts LXD if it does not answer, and returns the socket of the
// answering daemon.
func (i *Initialiser) start(ctx context.Context, progress func(string)) (string, error) {
	socket := i.socket()
	if socket != "" && ping(ctx, socket) == nil {
		return socket, failpoint.Hit(failpoint.InitWaitDaemon)
	}
	progress("starting " + i.opts.Dialect.Name)
	lives, err := i.startDaemon(ctx, socket)
	if err != nil {
		return "", err
	}
	if err := failpoint.Hit(failpoint.InitWaitDaemon); err != nil {
		return "", err
	}
	return i.waitReady(ctx, lives, progress)
}

// startDaemon starts LXD unless a daemon already runs. It starts no second
// daemon even if the first is slow or suspended, because two daemons would
// conflict. The returned function returns an error once it is certain that LXD
// will not answer.
func (i *Initialiser) startDaemon(ctx context.Context, socket string) (func() error, error) {
	unknown := func() error { return nil }
	switch {
	case i.underSystemd():
		return i.startUnit(ctx)
	case listening(ctx, socket):
		return unknown, nil
	case socket != "" && !i.startable(socket):
		return unknown, nil
	}
	if pid, there := i.running(i.dir()); there {
		return alive(pid, i.logFile()), nil
	}
	return i.startDirectly(ctx)
}

// startable reports whether hostler is permitted to start the daemon of a
// socket directly as a process. The snap's daemon must not be started without
// snapd.
func (i *Initialiser) startable(socket string) bool {
	return filepath.Dir(socket) == i.dir()
}

// dir returns the state folder of an LXD that hostler starts.
func (i *Initialiser) dir() string {
	if i.opts.Dir != "" {
		return i.opts.Dir
	}
	return i.opts.Paths.Host(i.opts.Dialect.folder)
}

// startDirectly starts the daemon without systemd, as a process that outlives
// the agent.
func (i *Initialiser) startDirectly(ctx context.Context) (func() error, error) {
	log := i.logFile()
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", i.opts.Dialect.Name, err)
	}
	i.forgetProcesses(i.dir())
	c := run.Command{Path: i.opts.Dialect.Program, Args: []string{"--group", i.opts.Group}, Detach: log}
	if i.opts.Dir != "" {
		if err := os.MkdirAll(i.opts.Dir, 0o711); err != nil {
			return nil, fmt.Errorf("cannot start %s: %w", i.opts.Dialect.Name, err)
		}
		c.Env = []string{i.opts.Dialect.Variable + "=" + i.opts.Dir}
	}
	result, err := i.opts.Runner.Run(ctx, c)
	if err != nil {
		return nil, fault.New(fault.Transient, "cannot start %s: %w", i.opts.Dialect.Name, err)
	}
	i.log.Info("The daemon started.", "pid", result.PID, "log", log)
	return alive(result.PID, log), nil
}

func (i *Initialiser) logFile() string {
	if i.opts.Dir != "" {
		return filepath.Join(i.opts.Dir, "logs", filepath.Base(i.opts.Dialect.log))
	}
	return i.opts.Paths.Host(i.opts.Dialect.log)
}

// waitReady returns the socket once the daemon answers. lives returns an error
// once it is certain that the daemon will not answer.
func (i *Initialiser) waitReady(ctx context.Context, lives func() error, progress func(string)) (string, error) {
	start := time.Now()
	reported, every := start, min(sayEvery, i.opts.StartTimeout/10)
	for {
		last := errors.New("it has not created its socket")
		if socket := i.socket(); socket != "" {
			if last = ping(ctx, socket); last == nil {
				return socket, nil
			}
		}
		if err := ctx.Err(); err != nil {
			return "", fmt.Errorf("cannot wait for %s: %w", i.opts.Dialect.Name, err)
		}
		waited := time.Since(start)
		if waited >= i.opts.StartTimeout {
			return "", fault.New(fault.Transient, "cannot start %s: no answer within %s: %w", i.opts.Dialect.Name, i.opts.StartTimeout, last)
		}
		if time.Since(reported) >= every {
			if err := lives(); err != nil {
				return "", fault.New(fault.Transient, "cannot start %s: %w", i.opts.Dialect.Name, err)
			}
			progress(fmt.Sprintf("waiting for %s to answer for %ds", i.opts.Dialect.Name, int(waited.Seconds())))
			reported = time.Now()
		}
		timer := time.NewTimer(pingEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}
