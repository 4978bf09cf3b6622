package lxc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// onTerminal runs a program on a terminal of its own. lxc-attach makes another
// in the guest and passes sizes on, so the one on the host is raw.
func (d *Driver) onTerminal(ctx context.Context, program run.Attached, req containerbroker.ExecRequest) (int, error) {
	master, slave, err := openTerminal(req.Width, req.Height)
	if err != nil {
		return -1, fmt.Errorf("cannot open a terminal: %w", err)
	}
	defer func() { _ = master.Close() }()
	defer func() { _ = slave.Close() }()
	program.Args = append([]string{"-c", "-w", program.Path}, program.Args...)
	program.Path = paths.Setsid
	program.Stdin, program.Stdout, program.Stderr = slave, slave, slave
	running, ended := context.WithCancel(ctx)
	defer ended()
	go resize(running, master, req.Resize)
	go func() {
		if req.Stdin != nil {
			if _, err := io.Copy(master, req.Stdin); err == nil {
				_, _ = master.Write([]byte{4}) // Ctrl-D
			}
		}
	}()
	output := make(chan error, 1)
	go func() {
		out := req.Stdout
		if out == nil {
			out = io.Discard
		}
		_, err := io.Copy(out, master)
		output <- err
	}()
	code, err := d.opts.Host.Attach(ctx, program)
	_ = slave.Close() // the master then reads to the end
	if cut := <-output; err == nil && cut != nil && !errors.Is(cut, unix.EIO) {
		err = fmt.Errorf("its output was cut short: %w", cut)
	}
	return code, err
}

func resize(ctx context.Context, master *os.File, sizes <-chan containerbroker.WindowSize) {
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-sizes:
			if !ok {
				return
			}
			_ = control(master, func(fd int) error { return setSize(fd, size.Width, size.Height) })
		}
	}
}

// openTerminal opens a raw pseudo-terminal.
func openTerminal(width, height int) (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	number := 0
	err = control(master, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	})
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err == nil {
		err = control(slave, func(fd int) error { return errors.Join(setRaw(fd), setSize(fd, width, height)) })
	}
	if err != nil {
		if slave != nil {
			_ = slave.Close()
		}
		_ = master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

// control runs f with the descriptor of a file, and leaves the file as it is.
func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Control(func(fd uintptr) { result = do(int(fd)) })
	return errors.Join(err, result)
}

func setSize(fd, width, height int) error {
	if width <= 0 || height <= 0 {
		return nil
	}
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)})
}

// setRaw is cfmakeraw(3).
func setRaw(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB
	t.Cflag |= unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}
