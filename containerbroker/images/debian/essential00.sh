#!/bin/sh
# Runs when the essential packages are configured, before all others come.
set -eu
umask 022
root=$1
# The host keys that openssh-server would make are of no use: every machine
# makes its own. It makes none where there are files already.
mkdir -p "$root/etc/ssh"
for kind in rsa ecdsa ed25519; do
	: > "$root/etc/ssh/ssh_host_${kind}_key"
	chmod 0600 "$root/etc/ssh/ssh_host_${kind}_key"
done
# Python packages are compiled one by one as they come, which takes longer
# than everything else; customize00.sh compiles all of them at once.
chroot "$root" dpkg-divert --local --quiet --rename --add /usr/bin/py3compile
mkdir -p "$root/usr/bin"
printf '#!/bin/sh\n' > "$root/usr/bin/py3compile"
chmod 0755 "$root/usr/bin/py3compile"
