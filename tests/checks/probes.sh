#!/bin/sh
# SPDX-License-Identifier: MIT
# The static probes of the release libraries in $BUILD: they are those of docs/PROBES.md, cost a nop
# each, and examples/folds.bt shows fold decisions with them.
. "$(dirname "$0")/tap.sh"

drop_in=$BUILD/src/preload/libmapfold-run.so

# Lines of docs/PROBES.md: a name, and how many arguments it tells of.
awk -F ' *[|] *' '/^[|] `/ { n = 0; for (i = 4; i < NF; i++) n += $i != ""; gsub("`", "", $2)
    print $2, n }' docs/PROBES.md | sort >"$work/told"

# probes LIBRARY: the same, as the library has them. A probe may stand in several places.
probes() {
    readelf -nW "$1" | awk '/Provider:/ { ours = $NF == "mapfold" } /Name:/ { name = $2 }
        /Arguments:/ && ours { print name, NF - 1 }' | sort -u
}

are_those_told() {
    probes "$1" | diff -u "$work/told" -
}

cost_a_nop() {
    readelf -nW "$1" | sed -n 's/.*Location: \(0x[0-9a-f]*\),.*/\1/p' >"$work/places"
    while read -r place; do
        objdump -d --no-show-raw-insn --start-address="$place" --stop-address="$((place + 1))" "$1" |
            grep -q "$(printf '%x' "$((place))"):[[:space:]]*nop" || echo "no nop at $place"
    done <"$work/places" >"$work/dear"
    cat "$work/dear"
    [ -s "$work/places" ] && [ ! -s "$work/dear" ]
}

all_seen() {
    grep -q 'mmap_scan: extent 1 of inode' "$work/live" &&
        grep -q 'mmap_scan, carved\]: [1-9]' "$work/live" &&
        grep -q 'mmap_scan, passed: few pieces\]: [1-9]' "$work/live"
}

# How long it takes to set the probes nobody knows; and they may be set in the middle of a program.
shows_folds() {
    bpftrace -B line examples/folds.bt "$drop_in" >"$work/live" 2>&1 &
    tracer=$!
    tries=0
    until all_seen; do
        tries=$((tries + 1))
        if [ "$tries" -gt 20 ] || ! kill -0 "$tracer"; then
            break
        fi
        "$BUILD/mapfold" run -- "$BUILD/examples/mmap_scan" --count 5000 --pages 4 --spread
        sleep 1
    done
    kill "$tracer"
    wait "$tracer"
    cat "$work/live"
    all_seen
}

# Its numbers of reasons are those of the header.
reasons_agree() {
    sed -n '/^enum mf_pass_reason/,/^}/s/^ *MF_PASS_\([A-Z_]*\),.*/\1/p' include/mapfold/mmap.h |
        awk '/^(FLAGS|FILE|FILE_SYSTEM|FEW|DEPTH)$/ { printf "%d %s\n", NR - 1, $1 }' >"$work/header"
    printf '0 FLAGS\n1 FILE\n2 FILE_SYSTEM\n4 FEW\n6 DEPTH\n' | diff -u - "$work/header"
}

if echo '#include <sys/sdt.h>' | gcc -E -x c - >/dev/null 2>&1; then
    for library in "$BUILD/libmapfold.so" "$drop_in"; do
        name=$(basename "$library")
        check "$name has the probes that docs/PROBES.md tells of, and no others" \
            are_those_told "$library"
        check "each probe of $name is one nop" cost_a_nop "$library"
    done
    check "folds.bt numbers reasons as the header does" reasons_agree
    if bpftrace -e 'BEGIN { exit(); }' >"$work/said" 2>&1; then
        check "folds.bt shows what mapfold run folds" shows_folds
    else
        skip "folds.bt shows what mapfold run folds" "bpftrace: $(tail -n 1 "$work/said")"
    fi
else
    skip "the libraries have probes" "there is no sys/sdt.h here"
fi
finish
