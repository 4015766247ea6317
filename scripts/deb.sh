#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the Debian packages from a copy of the tree, so that nothing of it changes. They are left in
# the directory named. Usage: deb.sh [DIRECTORY]
set -eu
cd "$(dirname "$0")/.."
out=${1:-build-deb}
copy=$out/mapfold

mkdir -p "$out"
rm -rf "$copy" "$out"/*.deb "$out"/*.changes "$out"/*.buildinfo
mkdir "$copy"
tar -c --exclude='./build*' --exclude=./.git --exclude=./.cache . | tar -x -C "$copy"
cd "$copy"
# Ours are for the machine of a developer; a package is made by Debian's.
unset CC CFLAGS LDFLAGS DESTDIR MAKEFLAGS MAKELEVEL MFLAGS
DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS-nocheck} parallel=${JOBS:-$(nproc)}" \
    dpkg-buildpackage --build=binary --no-sign
cd - >/dev/null
rm -rf "$copy"
