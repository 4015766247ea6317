#!/bin/sh
# SPDX-License-Identifier: MIT
# What `make demo` shows once everything is built: the second mail's tables on a real file, a
# picture of them, and what they say. Under two minutes. BUILD is the build directory.
set -eu

build=${BUILD:-build}
out=${1:-.}
mapfold=$build/mapfold

if [ ! -x "$mapfold" ]; then
    echo "demo: there is no $mapfold; run make build first" >&2
    exit 1
fi

echo "== A program maps pieces of one file by the ten thousand: $mapfold bench mmap_scan =="
echo
"$mapfold" bench mmap_scan --seconds 6 --plot "$out/mmap_scan.svg"
echo
echo "== What finding room costs, by the number of areas: $mapfold bench space --quick =="
echo
"$mapfold" bench space --quick --plot "$out/space.svg"
echo "Pictures: $out/mmap_scan.svg and $out/space.svg"
