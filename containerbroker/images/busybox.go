package images

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hostler/internal/fault"
	"hostler/internal/run"
)

// makeBusybox builds a minimal image for smoke tests and for trying out a
// declaration. It contains the host's static busybox and an init that asks a
// DHCP server for an address and keeps running. Its guests start almost at
// once.
func makeBusybox(ctx context.Context, c *Cache, j job) (product, error) {
	root := filepath.Join(j.work, "root")
	for _, dir := range []string{
		"", "bin", "sbin", "dev", "etc", "home", "mnt", "proc", "root", "run", "sys", "tmp",
		"usr", "usr/bin", "usr/sbin", "var", "var/lib", "var/log",
	} {
		if err := makeDir(filepath.Join(root, dir)); err != nil {
			return product{}, err
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		return product{}, err
	}
	binary := filepath.Join(root, "bin/busybox")
	if err := copyStatic(c.o.Busybox, binary); err != nil {
		return product{}, err
	}
	list, err := c.runner(j).Run(ctx, run.Command{Path: binary, Args: []string{"--list-full"}, Dir: j.work, Timeout: time.Minute})
	if err != nil {
		return product{}, err
	}
	for applet := range strings.FieldsSeq(string(list.Stdout)) {
		if applet == "sbin/init" || !filepath.IsLocal(applet) {
			continue // hostler's own script is the init
		}
		path := filepath.Join(root, applet)
		if err := os.Symlink("/bin/busybox", path); err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrNotExist) {
			return product{}, err
		}
	}
	texts := map[string]string{
		"etc/passwd":      "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"etc/group":       "root:x:0:\nnogroup:x:65534:\n",
		"etc/shadow":      "root:*:19000:0:99999:7:::\n",
		"etc/os-release":  "NAME=BusyBox\nID=busybox\nVERSION_ID=1\nPRETTY_NAME=\"BusyBox, built by hostler\"\n",
		"etc/resolv.conf": "",
	}
	for name, text := range texts {
		if err := makeFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return product{}, err
		}
	}
	for from, to := range map[string]string{"init": "sbin/init", "udhcpc.sh": "etc/udhcpc.sh"} {
		data, err := embedded.ReadFile("busybox/" + from)
		if err != nil {
			return product{}, err
		}
		if err := makeFile(filepath.Join(root, to), data, 0o755); err != nil {
			return product{}, err
		}
	}
	return c.pack(ctx, j, root, imageInfo{
		arch: c.o.Arch, os: "BusyBox", release: "1", epoch: c.o.Clock().UTC().Truncate(24 * time.Hour),
		description: "BusyBox " + c.o.Arch + " built by hostler",
	})
}

// copyStatic copies a program. It returns fault.NeedsOperator if the program is
// missing or needs shared libraries.
func copyStatic(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fault.New(fault.NeedsOperator, "no busybox is installed: %v", err)
	}
	defer func() { _ = in.Close() }()
	program, err := elf.NewFile(in)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", from, err)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return fault.New(fault.NeedsOperator, "%s needs shared libraries; the package busybox-static has a busybox without them", from)
		}
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Chmod(0o755)
}

// makeDir and makeFile set the same modes whatever the umask is.
func makeDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

func makeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
