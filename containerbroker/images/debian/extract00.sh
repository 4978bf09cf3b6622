#!/bin/sh
# Runs when the essential packages are unpacked, before any is configured.
# dpkg's own filter costs far less time than mmdebstrap's, which sees every
# package before this point.
set -eu
umask 022
root=$1
cat > "$root/etc/dpkg/dpkg.cfg.d/hostler" <<'X'
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/info/*
X
# Only while building: an interrupted build is thrown away whole.
echo force-unsafe-io > "$root/etc/dpkg/dpkg.cfg.d/hostler-build"
