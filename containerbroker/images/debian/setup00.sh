#!/bin/sh
# Runs before any package is downloaded: apt takes packages of earlier builds
# from here.
set -eu
umask 022
root=$1
mkdir -p "$root/var/cache/apt/archives"
find "${root%/*}/debs" -type f -name '*.deb' -exec mv -t "$root/var/cache/apt/archives" {} +
