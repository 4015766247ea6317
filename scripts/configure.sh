#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes a build directory, or makes it anew when it was made otherwise: by another compiler, another
# Meson, from another place, with other options, or not to the end. Usage: configure.sh DIR [OPTION]...
set -eu

build=$1
shift
source=$(cd "$(dirname "$0")/.." && pwd)
stamp=$build/mapfold-configuration
compiler=${CC:-cc}
# Unquoted: CC may hold options as well.
# shellcheck disable=SC2086
version=$($compiler --version | head -n 1)
configuration="$source | $compiler | $version | ${CFLAGS-} | ${LDFLAGS-} | $(meson --version) | $*"

if [ -f "$build/build.ninja" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$configuration" ]; then
    exit 0
fi
if [ -e "$build" ]; then
    if [ ! -d "$build/meson-private" ] && [ -n "$(ls -A "$build")" ]; then
        echo "$0: $build is in the way: it exists and is no build directory; move it or" \
            "choose another with BUILD=DIR" >&2
        exit 1
    fi
    echo "$build was configured otherwise or not to its end: making it anew"
    rm -rf "$build"
fi
meson setup "$build" "$source" "$@"
echo "$configuration" >"$stamp"
