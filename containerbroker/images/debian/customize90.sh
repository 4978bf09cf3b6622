#!/bin/sh
# Runs when all packages are installed: later builds need not download them.
set -eu
root=$1
find "$root/var/cache/apt/archives" -maxdepth 1 -type f -name '*.deb' -exec mv -t "${root%/*}/debs" {} +
