// Package sysctl reads and sets kernel parameters. It keeps hostler's settings
// over a reboot in a sysctl.d file of its own, and restores the earlier values
// when the settings are no longer wanted.
package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/internal/paths"
)

// Setting is a wanted value of a kernel parameter.
type Setting struct {
	// Name is the path below /proc/sys, with slashes, e.g. net/ipv4/ip_forward.
	// Dots are not separators, because interface names may contain dots.
	Name string `json:"name"`
	// Value is compared with the kernel's value; differences in white space do
	// not count.
	Value string `json:"value"`
	// AtLeast is for limits. An equal or higher number in the kernel satisfies
	// the setting, and hostler then does not own the value.
	AtLeast bool `json:"at-least,omitempty"`
	// Users are other programs on the host that could rely on the value, e.g.
	// bridges of Docker. The users at the first setting are remembered; see
	// Manager.ReleaseInUse.
	Users []string `json:"users,omitempty"`
}

// Name joins the elements of a parameter's name.
func Name(elements ...string) string { return strings.Join(elements, "/") }

// Manager sets parameters for several owners. Each owner declares all its
// settings at once. Calls change the whole host, so the caller must hold the
// host lock if another process might do the same.
type Manager struct {
	procSys, dropIn, state string
	log                    *slog.Logger

	mu sync.Mutex
}

// New returns a Manager that works below p.Root.
func New(p paths.Paths, log *slog.Logger) *Manager {
	return &Manager{procSys: p.ProcSys(), dropIn: p.SysctlDropIn(), state: p.SysctlState(), log: log}
}

// Read returns the kernel's value, with single spaces between its parts. The
// error for an absent parameter is NotFound.
func (m *Manager) Read(name string) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(m.procSys)
	if err != nil {
		return "", fmt.Errorf("cannot read kernel parameter %s: %w", name, err)
	}
	defer func() { _ = root.Close() }()
	data, err := root.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.NotFound, "cannot read kernel parameter %s: this kernel has no such parameter", name)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read kernel parameter %s: %w", name, err)
	}
	return normal(string(data)), nil
}

// Writable reports whether this host permits changing the parameter. In a
// container many parameters belong to the outer host.
func (m *Manager) Writable(name string) bool {
	return checkName(name) == nil && unix.Access(filepath.Join(m.procSys, name), unix.W_OK) == nil
}

// Satisfied reports whether the kernel has all settings, and names a setting
// that is missing. A setting counts as satisfied if the parameter cannot be
// read or changed here. Satisfied changes nothing.
func (m *Manager) Satisfied(settings []Setting) (bool, string) {
	for _, s := range settings {
		current, err := m.Read(s.Name)
		if err != nil || s.metBy(current) || !m.Writable(s.Name) {
			continue
		}
		return false, fmt.Sprintf("kernel parameter %s is %s, wanted %s", s.Name, current, s.Value)
	}
	return true, ""
}

// Set writes a value without an owner. The value is neither kept over a reboot
// nor restored later. The error for an absent parameter is NeedsOperator.
func (m *Manager) Set(name, value string) error { return m.write(name, value) }

// write sets the kernel's value.
func (m *Manager) write(name, value string) error {
	root, err := os.OpenRoot(m.procSys)
	if err != nil {
		return fmt.Errorf("cannot set kernel parameter %s: %w", name, err)
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	if err == nil {
		_, err = f.WriteString(value + "\n")
		err = errors.Join(err, f.Close())
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NeedsOperator, "cannot set kernel parameter %s: this kernel has no such parameter", name)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fault.New(fault.NeedsOperator, "cannot set kernel parameter %s to %s: not permitted here; set it on the host around this container", name, value)
	case errors.Is(err, unix.EINVAL):
		return fault.New(fault.Invalid, "cannot set kernel parameter %s: the kernel refuses %q", name, value)
	}
	return fmt.Errorf("cannot set kernel parameter %s: %w", name, err)
}

// metBy reports whether the kernel's value satisfies the setting.
func (s Setting) metBy(current string) bool {
	if s.AtLeast {
		have, err1 := strconv.ParseUint(current, 10, 64)
		want, err2 := strconv.ParseUint(normal(s.Value), 10, 64)
		if err1 == nil && err2 == nil {
			return have >= want
		}
	}
	return current == normal(s.Value)
}

func normal(value string) string { return strings.Join(strings.Fields(value), " ") }

// checkName accepts names that are valid in a sysctl.d file and below
// /proc/sys.
func checkName(name string) error {
	elements := strings.Split(name, "/")
	// sysctl.d(5) would read dots as slashes if the first element contained a
	// dot. No folder directly below /proc/sys has a dot in its name.
	bad := name == "" || strings.HasPrefix(name, "-") || strings.Contains(elements[0], ".")
	for _, e := range elements {
		bad = bad || e == "" || e == "." || e == ".." || strings.ContainsFunc(e, func(r rune) bool {
			return r <= ' ' || r == 0x7f || strings.ContainsRune("=*?[]#;\\", r)
		})
	}
	if bad || len(elements) < 2 {
		return fault.New(fault.Invalid, "%q is not the name of a kernel parameter like net/ipv4/ip_forward", name)
	}
	return nil
}

func checkSetting(s Setting) error {
	if err := checkName(s.Name); err != nil {
		return err
	}
	if normal(s.Value) == "" || strings.ContainsFunc(s.Value, func(r rune) bool { return r != '\t' && (r < ' ' || r == 0x7f) }) {
		return fault.New(fault.Invalid, "%q is not a value for kernel parameter %s", s.Value, s.Name)
	}
	return nil
}
