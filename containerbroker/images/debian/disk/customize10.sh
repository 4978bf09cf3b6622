#!/bin/sh
# Runs when all packages are installed.
set -eu
umask 022
root=$1
# The kernel's package keeps the list only if it comes first; it may not have.
printf '%s\n' virtio_pci virtio_blk virtio_scsi sd_mod virtio_net ext4 crc32c_generic > "$root/etc/initramfs-tools/modules"
chroot "$root" update-initramfs -u -k all
printf 'LABEL=root / ext4 defaults,noatime,errors=remount-ro 0 1\n' > "$root/etc/fstab"
# A volume is found where containers find it.
mkdir -p "$root/etc/udev/rules.d"
printf 'SUBSYSTEM=="block", KERNEL=="vd*", ENV{DEVTYPE}=="disk", ATTR{serial}=="?*", SYMLINK+="hostler-$attr{serial}"\n' > "$root/etc/udev/rules.d/60-hostler.rules"
# Unlike in a container, discards reach the host's file.
rm -f "$root/etc/systemd/system/fstrim.timer"
