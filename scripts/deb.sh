#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the Debian packages from a copy of the tree, so that nothing of it changes, and leaves them in
# the directory named, which may hold anything else: packages of the same version there are replaced,
# and nothing is removed. Usage: deb.sh [DIRECTORY]
set -eu
out=${1:-$(dirname "$0")/../build-deb}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."

# dpkg-buildpackage leaves what it makes beside the copy.
made=$(mktemp -d "$out/mapfold-deb-XXXXXX")
trap 'rm -rf "$made"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$made/mapfold"
tar -c --exclude='./build*' --exclude=./.git --exclude=./.cache --exclude="${made##*/}" . |
    tar -x -C "$made/mapfold"
# Ours are for the machine of a developer; a package is made by Debian's.
unset CC CFLAGS LDFLAGS DESTDIR MAKEFLAGS MAKELEVEL MFLAGS
(
    cd "$made/mapfold"
    DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS-nocheck} parallel=${JOBS:-$(nproc)}" \
        dpkg-buildpackage --build=binary --no-sign
)
mv -f "$made"/*.deb "$made"/*.changes "$made"/*.buildinfo "$out/"
