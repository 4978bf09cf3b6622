#!/bin/sh
# Runs when all packages are installed.
set -eu
umask 022
root=$1

rm "$root/usr/bin/py3compile"
chroot "$root" dpkg-divert --local --quiet --rename --remove /usr/bin/py3compile
chroot "$root" python3 -m compileall -q -j 0 --invalidation-mode timestamp \
	/usr/lib/python3 /usr/share/python3 -x '/(test|tests|lib2to3)/' || true
chroot "$root" python3 -c 'import sys; print("/usr/lib/python%d.%d" % sys.version_info[:2])' |
	while read -r lib; do chroot "$root" python3 -m compileall -q -j 0 --invalidation-mode timestamp -x '/(test|tests|lib2to3)/' "$lib" || true; done

# LXD's templates, cloud-init and the first start fill these.
rm -f "$root/etc/hostname" "$root"/etc/ssh/ssh_host_*
echo localhost > "$root/etc/hostname"
echo uninitialized > "$root/etc/machine-id"
rm -f "$root/var/lib/dbus/machine-id"

# Networks are networkd's, and ifupdown, which comes along with cloud-init, has
# nothing to say; bullseye's cloud-init can only write for ifupdown.
if grep -q '^VERSION_CODENAME=bullseye' "$root/etc/os-release"; then
	idle=systemd-networkd.service
else
	idle=networking.service
	chroot "$root" systemctl -q enable systemd-networkd.service systemd-resolved.service
	ln -sf ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
fi

# What has no use in a container, fails in one, or slows its start.
for unit in "$idle" apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
	e2scrub_reap.service fstrim.timer systemd-binfmt.service systemd-journald-audit.socket systemd-timesyncd.service sys-kernel-debug.mount; do
	ln -sf /dev/null "$root/etc/systemd/system/$unit"
done

rm -f "$root/etc/dpkg/dpkg.cfg.d/hostler-build" "$root"/var/cache/apt/*.bin
rm -rf "$root/var/log/apt" "$root/var/log/dpkg.log" "$root/var/cache/debconf/"*-old
# Packages that were unpacked before dpkg's filter was in place.
rm -rf "$root/usr/share/man" "$root/usr/share/info" "$root/usr/share/locale"
find "$root/usr/share/doc" -mindepth 2 ! -name copyright ! -type d -delete
find "$root/usr/share/doc" -mindepth 1 -type d -empty -delete
