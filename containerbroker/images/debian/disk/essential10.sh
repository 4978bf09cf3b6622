#!/bin/sh
# Runs when the essential packages are configured, before the kernel comes: its
# first root filesystem needs only what a disk of a KVM guest is reached by.
set -eu
umask 022
root=$1
mkdir -p "$root/etc/initramfs-tools/conf.d"
printf 'MODULES=list\nCOMPRESS=zstd\nRESUME=none\n' > "$root/etc/initramfs-tools/conf.d/hostler"
printf '%s\n' virtio_pci virtio_blk virtio_scsi sd_mod virtio_net ext4 crc32c_generic > "$root/etc/initramfs-tools/modules"
# The boot loader finds the kernel in the root folder. Debian's kernels make their
# links there, those of Ubuntu in /boot.
printf 'do_symlinks = yes\nlink_in_boot = no\n' > "$root/etc/kernel-img.conf"
