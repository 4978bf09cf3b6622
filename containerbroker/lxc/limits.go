package lxc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// period is the time, in microseconds, in which a guest may use the processor
// for period times its number of processors.
const period = 100_000

// limit is a file of a cgroup. An empty value means no limit, for which the
// kernel's file has the value none.
type limit struct{ field, controller, file, value, none string }

// limits returns the files of this host's cgroup layout.
func (d *Driver) limits(p containerbroker.Properties) []limit {
	number := func(n int64) string {
		if n <= 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	quota := number(int64(p.CPUs) * period)
	if d.unified() {
		if quota != "" {
			quota += " " + strconv.Itoa(period)
		}
		return []limit{
			{containerbroker.FieldCPUs, "", "cpu.max", quota, "max"},
			{containerbroker.FieldMemory, "", "memory.max", number(p.Memory), "max"},
		}
	}
	length := ""
	if quota != "" {
		length = strconv.Itoa(period)
	}
	return []limit{
		{containerbroker.FieldCPUs, "cpu", "cpu.cfs_period_us", length, strconv.Itoa(period)},
		{containerbroker.FieldCPUs, "cpu", "cpu.cfs_quota_us", quota, "-1"},
		{containerbroker.FieldMemory, "memory", "memory.limit_in_bytes", number(p.Memory), "-1"},
	}
}

// readLimits reads the limits of a config.
func (d *Driver) readLimits(c config) (cpus int, memory int64, odd string) {
	return d.parseLimits(func(file string) string { return c.get(d.cgroupKey(file)) })
}

// parseLimits reads limits by the values of a cgroup's files. odd names a limit that
// no machine can declare.
func (d *Driver) parseLimits(get func(file string) string) (cpus int, memory int64, odd string) {
	var text, length string
	if d.unified() {
		text, length, _ = strings.Cut(get("cpu.max"), " ")
	} else if text = get("cpu.cfs_quota_us"); text != "" && text != "-1" { // without a limit the period does not count
		length = get("cpu.cfs_period_us")
	}
	if text != "" && text != "max" && text != "-1" {
		quota, err := strconv.ParseInt(text, 10, 64)
		each, err2 := strconv.ParseInt(length, 10, 64)
		if length == "" {
			each, err2 = period, nil
		}
		if err != nil || err2 != nil || each <= 0 || quota <= 0 || quota%each != 0 {
			return -1, 0, "its limit of processor time is not a whole number of processors: set it to one first"
		}
		cpus = int(quota / each)
	}
	file := "memory.limit_in_bytes"
	if d.unified() {
		file = "memory.max"
	}
	if text := get(file); text != "" && text != "max" && text != "-1" {
		if memory = bytesOf(text); memory <= 0 {
			return cpus, -1, "its limit of memory is not a size in bytes: set it to one first"
		}
	}
	return cpus, memory, ""
}

// observeLimits reads the limits of a running instance's cgroup into now. After a
// reboot from inside they are those that its monitor read at its start.
func (d *Driver) observeLimits(ctx context.Context, e entry, now *containerbroker.Properties) {
	var failed error
	cpus, memory, _ := d.parseLimits(func(file string) string {
		controller, _, _ := strings.Cut(file, ".")
		text, err := d.readLimit(ctx, e, controller, file)
		failed = errors.Join(failed, err)
		return strings.TrimSpace(text)
	})
	if failed != nil {
		return // it has just ended, or the host has no such limit
	}
	if memory > maxMemory {
		memory = 0
	}
	now.CPUs = cpus
	if memory != now.Memory&^int64(os.Getpagesize()-1) { // the kernel rounds down
		now.Memory = memory
	}
}

// maxMemory is less than the value of memory.limit_in_bytes without a limit, which
// depends on the size of a page.
const maxMemory = 1 << 62

func (d *Driver) readLimit(ctx context.Context, e entry, controller, file string) (string, error) {
	var dir string
	var err error
	switch group := e.conf.get(keyGroup); {
	case group == "":
		dir, err = d.limitCgroup(ctx, e.name, controller)
	case d.unified():
		dir, err = d.cgroupPath("", group)
	default:
		dir, err = d.cgroupPath(controller, group)
	}
	if err != nil {
		return "", err
	}
	return readProc(filepath.Join(dir, file))
}

// bytesOf reads a size as the kernel does, e.g. 512M. It returns -1 if the
// text is no size.
func bytesOf(text string) int64 {
	shift := map[byte]uint{'k': 10, 'm': 20, 'g': 30, 't': 40}
	bits := uint(0)
	if n := len(text); n > 0 {
		if b, is := shift[text[n-1]|0x20]; is {
			text, bits = text[:n-1], b
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > (1<<63-1)>>bits {
		return -1
	}
	return n << bits
}

// applyLimit writes the files of a field in the cgroup of a running instance.
// The limits are on the cgroup above the one that the guest sees, so not even a
// privileged guest can change them.
func (d *Driver) applyLimit(ctx context.Context, name, field string, p containerbroker.Properties) error {
	for _, l := range d.limits(p) {
		if l.field != field {
			continue
		}
		dir, err := d.limitCgroup(ctx, name, l.controller)
		if err != nil {
			return err
		}
		value := l.value
		if value == "" {
			value = l.none
		}
		if l.file == "memory.max" && !reclaim(dir, p.Memory) {
			err = unix.EBUSY // as the kernel says on cgroup v1
		} else {
			err = os.WriteFile(filepath.Join(dir, l.file), []byte(value), 0)
		}
		if errors.Is(err, unix.EBUSY) {
			return fault.New(fault.Transient, "the guest uses more memory than that: let it use less, or restart the machine")
		}
		if err != nil {
			return fmt.Errorf("cannot limit it: %w", err)
		}
	}
	return nil
}

// reclaim reports whether a cgroup of v2 uses at most limit bytes, after an attempt to
// free the rest. Under a lower limit the kernel would kill processes. Kernels before
// 5.19 free nothing on request.
func reclaim(dir string, limit int64) bool {
	excess := func() int64 {
		text, _ := readProc(filepath.Join(dir, "memory.current"))
		used, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		return used - limit
	}
	if limit <= 0 || excess() <= 0 {
		return true
	}
	_ = os.WriteFile(filepath.Join(dir, "memory.reclaim"), []byte(strconv.FormatInt(excess(), 10)), 0)
	return excess() <= 0
}

// cgroupPath returns the folder of a cgroup that a monitor named, on cgroup v1 with
// a slash in front and on v2 without. It refuses a path that leaves the hierarchy.
func (d *Driver) cgroupPath(controller, path string) (string, error) {
	path = strings.TrimPrefix(strings.TrimRight(path, "\x00"), "/")
	if !filepath.IsLocal(path) || filepath.Clean(path) != path || path == "." || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("the monitor names no cgroup")
	}
	return filepath.Join(d.opts.Cgroup, controller, path), nil
}
