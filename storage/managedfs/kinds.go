package managedfs

import (
	"context"
	"fmt"
	"os"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// kind describes a type of filesystem.
type kind struct {
	// least is the smallest device that mkfs accepts, in bytes.
	least int64
	// pkg is the Debian package with the tools.
	pkg string
	// make, check and grow return commands. blank says that each byte of the
	// device is zero. The command of check changes nothing and fails if the
	// filesystem is damaged. The command of grow works on a mounted filesystem.
	make  func(device, id, label string, blank bool) run.Command
	check func(device string) run.Command
	grow  func(device, path string) run.Command
}

// Least returns the size in bytes of the smallest device for a type of
// filesystem, or 0 for an unknown type.
func Least(kind string) int64 { return kinds[kind].least }

// kinds holds the types. mkfs discards nothing, because the device is blank and
// a discard would free the blocks of an allocated volume.
var kinds = map[string]kind{
	"ext4": {
		least: 2 << 20, pkg: "e2fsprogs",
		// No blocks are reserved for root, because the host's programs are not on
		// this filesystem.
		make: func(device, id, label string, blank bool) run.Command {
			options := "nodiscard"
			if blank {
				options += ",lazy_journal_init=1" // zeroing the journal again takes most of the time
			}
			return run.Command{Path: paths.MkfsExt4, Args: []string{"-F", "-E", options, "-m", "0", "-U", id, "-L", label, device}}
		},
		check: func(device string) run.Command {
			return run.Command{Path: paths.E2fsck, Args: []string{"-f", "-n", device}}
		},
		grow: func(device, _ string) run.Command { return run.Command{Path: paths.Resize2fs, Args: []string{device}} },
	},
	"xfs": {
		least: 300 << 20, pkg: "xfsprogs",
		make: func(device, id, label string, _ bool) run.Command {
			return run.Command{Path: paths.MkfsXfs, Args: []string{"-f", "-K", "-m", "uuid=" + id, "-L", label, device}}
		},
		check: func(device string) run.Command {
			return run.Command{Path: paths.XfsRepair, Args: []string{"-n", device}}
		},
		grow: func(_, path string) run.Command {
			return run.Command{Path: paths.XfsGrowfs, Args: []string{"-d", path}}
		},
	},
	"btrfs": {
		least: 110 << 20, pkg: "btrfs-progs",
		make: func(device, id, label string, _ bool) run.Command {
			return run.Command{Path: paths.MkfsBtrfs, Args: []string{"-f", "-K", "-U", id, "-L", label, device}}
		},
		check: func(device string) run.Command {
			return run.Command{Path: paths.Btrfs, Args: []string{"check", "--readonly", device}}
		},
		grow: func(_, path string) run.Command {
			return run.Command{Path: paths.Btrfs, Args: []string{"filesystem", "resize", "max", path}}
		},
	},
}

// absent returns the path of the first program that the type needs and the host
// lacks, or "".
func (k kind) absent() string {
	for _, c := range []run.Command{k.make("", "", "", false), k.check(""), k.grow("", "")} {
		if _, err := os.Stat(c.Path); err != nil {
			return c.Path
		}
	}
	return ""
}

// Missing implements storage.Dependent.
func (s *Source) Missing(name string) string {
	k, known := kinds[name]
	if !known || s.o.Install == nil || k.absent() == "" {
		return ""
	}
	return k.pkg
}

// ready installs a type's programs if they are missing.
func (s *Source) ready(ctx context.Context, k kind, progress func(string)) error {
	program := k.absent()
	if program == "" {
		return nil
	}
	if s.o.Install == nil {
		return fault.New(fault.NeedsOperator, "%s is missing: install the package %s", program, k.pkg)
	}
	if progress == nil {
		progress = func(string) {}
	}
	if err := s.o.Install(ctx, k.pkg, progress); err != nil {
		return fmt.Errorf("%s is missing: %w", program, err)
	}
	if program = k.absent(); program != "" {
		return fault.New(fault.NeedsOperator, "%s is missing, although the package %s is installed: install it again", program, k.pkg)
	}
	return nil
}

// tool runs a tool of a filesystem type.
func (s *Source) tool(ctx context.Context, k kind, c run.Command) error {
	if err := s.ready(ctx, k, nil); err != nil {
		return err
	}
	_, err := s.o.Runner.Run(ctx, c)
	return err
}
