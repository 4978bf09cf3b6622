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
	"hostler/internal/paths"
	"hostler/internal/run"
)

const (
	// pingTimeout bounds one question to the daemon. A socket-activated daemon
	// is started by it and may need longer: then the next one is answered.
	pingTimeout = 5 * time.Second
	pingEvery   = 200 * time.Millisecond
	// sayEvery is how often the waiting is told anew at most.
	sayEvery = 5 * time.Second
)

// ping asks the daemon at socket for its version. While it still starts, LXD
// answers 503. The LXD client is not used here because it does not bound its
// dial.
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

// listening says whether a process has the socket, answering or not.
func listening(ctx context.Context, socket string) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		// A full backlog is somebody's, too.
		return errors.Is(err, syscall.EAGAIN) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
	}
	_ = conn.Close()
	return true
}

// start returns the socket of a daemon that answers, started where needed.
func (i *Initialiser) start(ctx context.Context, progress func(string)) (string, error) {
	socket := i.Socket()
	if socket != "" && ping(ctx, socket) == nil {
		return socket, failpoint.Hit(failpoint.InitWaitDaemon)
	}
	progress("starting LXD")
	lives, err := i.startDaemon(ctx, socket)
	if err != nil {
		return "", err
	}
	if err := failpoint.Hit(failpoint.InitWaitDaemon); err != nil {
		return "", err
	}
	return i.waitReady(ctx, lives, progress)
}

// startDaemon starts LXD unless it is there already, slow or stopped: a second
// one would be in its way. What it returns fails once LXD is known not to come.
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

// startable says that the daemon behind a silent socket is one that we may
// start: not the snap's.
func (i *Initialiser) startable(socket string) bool {
	return filepath.Dir(socket) == i.dir()
}

// dir is LXD's folder when we start it.
func (i *Initialiser) dir() string {
	if i.opts.LXDDir != "" {
		return i.opts.LXDDir
	}
	return i.opts.Paths.Host(paths.DebianLXDDir)
}

// startDirectly starts the daemon where no systemd does, as a process of its
// own that outlives the agent.
func (i *Initialiser) startDirectly(ctx context.Context) (func() error, error) {
	log := i.logFile()
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return nil, fmt.Errorf("cannot start LXD: %w", err)
	}
	i.forgetProcesses(i.dir())
	c := run.Command{Path: paths.LXD, Args: []string{"--group", i.opts.Group}, Detach: log}
	if i.opts.LXDDir != "" {
		if err := os.MkdirAll(i.opts.LXDDir, 0o711); err != nil {
			return nil, fmt.Errorf("cannot start LXD: %w", err)
		}
		c.Env = []string{"LXD_DIR=" + i.opts.LXDDir}
	}
	result, err := i.opts.Runner.Run(ctx, c)
	if err != nil {
		return nil, fault.New(fault.Transient, "cannot start LXD: %w", err)
	}
	i.log.Info("LXD started", "pid", result.PID, "log", log)
	return alive(result.PID, log), nil
}

func (i *Initialiser) logFile() string {
	if i.opts.LXDDir != "" {
		return filepath.Join(i.opts.LXDDir, "logs", "lxd.log")
	}
	return i.opts.Paths.Host(paths.DebianLXDLog)
}

// waitReady returns the socket once the daemon answers. lives returns an
// error when the daemon is known not to come.
func (i *Initialiser) waitReady(ctx context.Context, lives func() error, progress func(string)) (string, error) {
	start := time.Now()
	told, every := start, min(sayEvery, i.opts.StartTimeout/10)
	for {
		last := errors.New("it has made no socket")
		if socket := i.Socket(); socket != "" {
			if last = ping(ctx, socket); last == nil {
				return socket, nil
			}
		}
		if err := ctx.Err(); err != nil {
			return "", fmt.Errorf("cannot wait for LXD: %w", err)
		}
		waited := time.Since(start)
		if waited >= i.opts.StartTimeout {
			return "", fault.New(fault.Transient, "cannot start LXD: no answer within %s: %w", i.opts.StartTimeout, last)
		}
		if time.Since(told) >= every {
			if err := lives(); err != nil {
				return "", fault.New(fault.Transient, "cannot start LXD: %w", err)
			}
			progress(fmt.Sprintf("waiting for LXD to answer for %ds", int(waited.Seconds())))
			told = time.Now()
		}
		timer := time.NewTimer(pingEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}
