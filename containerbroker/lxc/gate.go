package lxc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/paths"
)

// gateHook is a hook of liblxc that runs when a guest is complete and its init has
// not begun. It writes the guest's process id into a file and waits for the file's
// lock, which a process that ends gives up. Without the file, e.g. at a reboot from
// inside, it does not wait.
const gateHook = `lxc.hook.start-host = /bin/sh -c 'test ! -e "$0" || { echo $LXC_PID >"$0"; /usr/bin/flock -w 10 "$0" true; }; true' `

// rebootHook is a hook of liblxc by which a guest that was started with disks stops
// instead of rebooting: liblxc would start it again without its disks, and does not if
// the hook fails. It reads the note, because the disks may be gone since.
const rebootHook = `lxc.hook.post-stop = /bin/sh -c 'test "$LXC_TARGET" != reboot || ! /bin/grep -qs "\"disks\":" "${LXC_CONFIG_FILE%/*}/` + fileNote + `"' `

// gateEvery is the interval at which startHeld looks for the hook.
const gateEvery = 2 * time.Millisecond

// startHeld runs lxc-start and mounts the disks of the instance before its init
// begins, also after a reboot from inside. It starts nothing if a disk cannot be opened. The caller mounts what could
// not be mounted so early.
func (d *Driver) startHeld(ctx context.Context, e entry, args ...string) (code int, err error) {
	if len(e.noted().Disks) == 0 || !safeName.MatchString(e.name) {
		return d.tool(ctx, d.opts.StartTimeout, paths.LXCStart, e.name, args...)
	}
	trees := map[string]int{}
	defer func() {
		for _, tree := range trees {
			_ = unix.Close(tree)
		}
	}()
	for name, g := range e.note.Disks {
		if trees[name], err = d.openDisk(ctx, e, name, g); err != nil {
			delete(trees, name)
			return 0, err
		}
	}
	path := filepath.Join(d.opts.Run, "lxc", "start."+d.opts.Namespace+"."+e.name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return 0, err
	}
	gate, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, err
	}
	open := func() { _, _ = os.Remove(path), gate.Close() }
	defer open()
	if err := unix.Flock(int(gate.Fd()), unix.LOCK_EX); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		code, err = d.tool(ctx, d.opts.StartTimeout, paths.LXCStart, e.name, append(args, "-s", gateHook+path, "-s", rebootHook)...)
	}()
	ticker := time.NewTicker(gateEvery)
	defer ticker.Stop()
	for ticks := ticker.C; ; {
		select {
		case <-ended:
			return code, err
		case <-ticks:
			text := make([]byte, 32)
			n, _ := gate.ReadAt(text, 0)
			pid, err := strconv.Atoi(strings.TrimSuffix(string(text[:n]), "\n"))
			if err != nil || text[n-1] != '\n' {
				continue
			}
			for _, name := range byTarget(e.note.Disks) {
				err = errors.Join(err, d.mountDisk(ctx, e, pid, trees[name], e.note.Disks[name]))
			}
			if err != nil {
				d.log.Debug("The disks are not mounted before init.", "instance", e.name, "error", err)
			}
			open()
			ticks = nil
		}
	}
}
