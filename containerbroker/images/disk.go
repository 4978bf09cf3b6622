package images

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// Disk describes a bootable disk to make.
type Disk struct {
	// Root is a directory with all files of the disk. In it, the boot loader
	// reads the kernel from /vmlinuz and the initramfs from /initrd.img. Both
	// may be links that a new kernel changes.
	Root string
	// Size is the size of the whole disk in bytes.
	Size int64
	// Arguments are further kernel arguments, besides root= and console=.
	Arguments string
	// Grub is the directory of GRUB's modules for i386-pc; empty means the
	// host's directory.
	Grub string
}

// diskPackages contain the programs that MakeDisk runs.
var diskPackages = []string{"e2fsprogs", "grub-common", "grub-pc-bin", "qemu-utils"}

const (
	sectorSize = 512
	// firstSector is the first sector of the partition. The partition begins
	// after 1 MiB, as usual, and the boot loader is before the partition.
	firstSector = 2048
	// bootCode is the number of bytes in the first sector that belong to the
	// boot loader. The partition table follows after them.
	bootCode = 440
	// diskTimeout bounds each program that MakeDisk runs.
	diskTimeout = 10 * time.Minute
)

// MakeDisk writes a qcow2 disk for BIOS boot to target, with a single ext4
// partition labelled "root". It mounts nothing and attaches no device. work is
// a directory that nothing else uses. The boot loader only needs /vmlinuz and
// /initrd.img in the disk's first partition, so a guest can replace its kernel
// or grow its disk without a new boot loader.
func MakeDisk(ctx context.Context, runner run.Runner, d Disk, work, target string) error {
	fs, core, raw := filepath.Join(work, "fs.img"), filepath.Join(work, "core.img"), filepath.Join(work, "disk.img")
	d.Grub = cmp.Or(d.Grub, paths.GrubModules)
	size := d.Size/sectorSize*sectorSize - firstSector*sectorSize
	if size <= 0 {
		return fault.New(fault.Invalid, "a disk of %d bytes is too small", d.Size)
	}
	if err := sparse(fs, size); err != nil {
		return err
	}
	config := filepath.Join(work, "grub.cfg")
	text := "set root=(hd0,msdos1)\nlinux /vmlinuz root=LABEL=root ro console=ttyS0 " + d.Arguments + "\ninitrd /initrd.img\nboot\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	for _, c := range []run.Command{
		{Path: paths.MkfsExt4, Args: []string{"-q", "-L", "root", "-d", d.Root, fs}},
		{Path: paths.GrubMkimage, Args: []string{
			"-d", d.Grub, "-O", "i386-pc", "-p", "/boot/grub", "-c", config, "-o", core,
			"biosdisk", "part_msdos", "ext2", "linux", "boot", "minicmd",
		}},
	} {
		c.Timeout, c.Dir = diskTimeout, work
		if _, err := runner.Run(ctx, c); err != nil {
			return err
		}
	}
	if err := assemble(raw, filepath.Join(d.Grub, "boot.img"), core, fs, size); err != nil {
		return fmt.Errorf("cannot put the disk together: %w", err)
	}
	// Do not compress the disk, because the boot loader reads in small pieces,
	// and QEMU would unpack a whole cluster for each piece.
	_, err := runner.Run(ctx, run.Command{
		Path: paths.QemuImg, Args: []string{"convert", "-f", "raw", "-O", "qcow2", raw, target}, Timeout: diskTimeout, Dir: work,
	})
	return errors.Join(err, os.Remove(raw), os.Remove(fs))
}

// assemble writes the boot sector, the boot loader and the partition to a raw
// disk. The second stage of GRUB is placed at the second sector, where the
// first stage reads it by default.
func assemble(raw, boot, core, fs string, size int64) error {
	first, err := os.ReadFile(boot)
	if err != nil {
		return err
	}
	second, err := os.ReadFile(core)
	if err != nil {
		return err
	}
	if len(first) < bootCode || len(second) > (firstSector-1)*sectorSize {
		return fault.New(fault.Transient, "the boot loader has %d and %d bytes", len(first), len(second))
	}
	sector := make([]byte, sectorSize)
	copy(sector, first[:bootCode])
	// The partition is active and of type 83. The table has the partition's
	// place in sectors. The older CHS fields have their maximum.
	copy(sector[446:], []byte{0x80, 0xfe, 0xff, 0xff, 0x83, 0xfe, 0xff, 0xff})
	binary.LittleEndian.PutUint32(sector[454:], firstSector)
	binary.LittleEndian.PutUint32(sector[458:], uint32(size/sectorSize))
	copy(sector[510:], []byte{0x55, 0xaa})
	if err := sparse(raw, firstSector*sectorSize+size); err != nil {
		return err
	}
	out, err := os.OpenFile(raw, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = out.Write(append(sector, second...))
	if err == nil {
		err = copySparse(out, firstSector*sectorSize, fs)
	}
	return errors.Join(err, out.Close())
}

// sparse makes a file of the given size without allocated blocks.
func sparse(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// copySparse copies the file with the path from into out, at the offset at. It
// skips blocks of zeros.
func copySparse(out *os.File, at int64, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	block, zero := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, err := io.ReadFull(in, block)
		if n > 0 && string(block[:n]) != string(zero[:n]) {
			if _, err := out.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}
