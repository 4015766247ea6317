#!/bin/sh
# SPDX-License-Identifier: MIT
# What `make demo` shows once everything is built: the second mail's program on a real file, plain and
# under `mapfold run`, then its tables and a picture. Under two minutes. BUILD is the build
# directory; pictures go to the directory named, or here.
set -eu

build=${BUILD:-build}
out=${1:-.}
mapfold=$build/mapfold
scan=$build/examples/mmap_scan
directory=${TMPDIR:-/var/tmp}

for program in "$mapfold" "$scan"; do
    if [ ! -x "$program" ]; then
        echo "demo: there is no $program; run make build first" >&2
        exit 1
    fi
done
work=$(mktemp -d "$directory/mapfold-demo.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

limit=$(cat /proc/sys/vm/max_map_count)
# A million pieces that all are the same page are copies: 4 KiB each. The layer takes a quarter of
# the memory for them, and what is free must bear it.
free_kib=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
all_kib=$(awk '$1 == "MemTotal:" { print $2 }' /proc/meminfo)
share_kib=$((free_kib * 3 / 4 < all_kib / 4 ? free_kib * 3 / 4 : all_kib / 4))
copies=$((share_kib * 9 / 40))
million=1000000
if [ "$copies" -lt "$million" ]; then
    million=$((copies / 100000 * 100000))
    [ "$million" -ge 100000 ] || million=100000
    echo "(This machine has memory for $million copies of a page, not for a million.)"
    echo
fi

# run NAME COMMAND...: runs it, its output in a file of that name, and tells how it ended.
run() {
    name=$1
    shift
    status=0
    "$@" >"$work/$name" 2>"$work/$name.errors" || status=$?
    awk 'NR <= 3 { print } NR > 3 { line[NR] = $0 } END {
        if (NR > 5) print "      ..."
        for (i = NR > 5 ? NR - 1 : 4; i <= NR; i++) if (i in line) print line[i] }' "$work/$name"
    cat "$work/$name.errors"
    [ "$status" = 0 ] || echo "(exit status $status)"
    echo
}

# in_table TITLE NAME STEP: a line of the closing table, from what the program printed.
in_table() {
    awk -v title="$1" -v step="$3" '
        FNR == NR && $2 == "Time:" { if (!first) first = $3; last = $3; reached = $1 }
        FNR == NR && / kernel maps/ { maps = $5; reached = $3 }
        FNR < NR && / live: / { failed = $0; sub(/.*with /, "", failed); sub(/ live:.*/, "", failed) }
        FNR < NR && /This process has/ { maps = $4 }
        END {
            if (failed) reached = failed
            printf "  %-42s %9s %10s %11.2f %11.2f  %s\n", title, reached, maps ? maps : "-",
                first * 1000 / step, last * 1000 / step, failed ? "ENOMEM" : "done" }' \
        "$work/$2" "$work/$2.errors"
}

same="--count $million --window $million --step 50000 --read --write"
echo "== The mail's program: a page of a file, mapped, read and written, and kept; plain =="
echo "   (vm.max_map_count is $limit)"
echo
# shellcheck disable=SC2086
run same.plain "$scan" $same --step 5000
echo "== The same under $build/mapfold run =="
echo
# shellcheck disable=SC2086
run same.folded "$mapfold" run -- "$scan" $same

truncate -s 16G "$work/sparse"
pieces="--count 300000 --window 300000 --step 50000 --pages 64 --spread --file $work/sparse"
echo "== 300,000 pieces of 1 to 64 pages anywhere in a file of 16 GiB, kept; plain =="
echo
# shellcheck disable=SC2086
run many.plain "$scan" $pieces --step 5000
echo "== The same under $build/mapfold run =="
echo
# shellcheck disable=SC2086
run many.folded "$mapfold" run -- "$scan" $pieces

echo "== What each 5,000 cost, mapped by the kernel, through mapfold, and on paper =="
echo
"$mapfold" bench mmap_scan.window20k --seconds 4 --plot "$out/mmap_scan.svg"
echo "== What finding room costs, by the number of areas =="
echo
"$mapfold" bench space.steady --quick --seconds 5 --plot "$out/space.svg"

echo "Pictures: $out/mmap_scan.svg and $out/space.svg"
echo
printf '  %-42s %9s %10s %11s %11s  %s\n' "" "live" "maps" "us, first" "us, last" "end"
in_table "one page, read and written, plain" same.plain 5000
in_table "one page, read and written, mapfold run" same.folded 50000
in_table "1 to 64 pages of 16 GiB, plain" many.plain 5000
in_table "1 to 64 pages of 16 GiB, mapfold run" many.folded 50000
echo
folded=$(awk '/ live, / { print $3 }' "$work/same.folded")
pieces=$(awk '/ live, / { print $3 }' "$work/many.folded")
echo "us: for one piece, in the first and the last steps. Plain, the program ended where the kernel's"
echo "limit is; under mapfold run it kept ${folded:-fewer than asked} pieces of one page and ${pieces:-fewer than asked} of many."
echo "The pieces of one page overlap, so they are private copies made when they were mapped: 4 KiB"
echo "of memory each, and blind to later writes to the file. The others are the file's own pages."
